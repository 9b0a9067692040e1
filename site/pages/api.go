package pages

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
)

// apiSource is what documents link to for the HTTP API; on the site such a link leads to the
// page that readAPI makes.
const apiSource = "../x/server/openapi.json"

// An openAPI is the part of an OpenAPI description that the page shows.
type openAPI struct {
	Info struct {
		Title, Summary, Description string
	}
	Tags  []struct{ Name, Description string }
	Paths map[string]map[string]operation

	Components struct {
		Parameters map[string]parameter
		Responses  map[string]response
		Schemas    map[string]schema
		Headers    map[string]any
	}
}

type operation struct {
	Summary, Description string
	Tags                 []string
	Parameters           []parameter
	RequestBody          struct{ Content map[string]content }
	Responses            map[string]response

	Method, Path, Anchor string `json:"-"`
}

type parameter struct {
	Ref             string `json:"$ref"`
	Name, In        string
	Description     string
	Required        bool
	Schema          schema
	AllowEmptyValue bool
}

type response struct {
	Ref         string `json:"$ref"`
	Description string
	Content     map[string]content
}

type content struct{ Schema schema }

type schema struct {
	Ref         string `json:"$ref"`
	Type        any    // a name, or several
	Description string
	Properties  map[string]schema
	Items       *schema
	Enum        []any
	Default     any
	Required    []string
	Examples    []any
	AnyOf       []schema
	OneOf       []schema
}

//go:embed assets/api.tmpl
var apiText string

// readAPI makes a page of the description of the HTTP API.
func (b *builder) readAPI() error {
	if b.options.OpenAPI == nil {
		return nil
	}
	var api openAPI
	if err := json.Unmarshal(b.options.OpenAPI, &api); err != nil {
		return fmt.Errorf("description of the HTTP API: %w", err)
	}
	p := &page{source: apiSource, path: "http-api.html", Title: "HTTP API", anchors: map[string]bool{}}
	tags := api.group(anchorIDs{p.anchors})
	functions := template.FuncMap{
		"kind": kindOf, "typeOf": api.typeOf, "parameter": api.parameter, "response": api.response, "paragraphs": paragraphs,
		"schemas": func() []string { return slices.Sorted(maps.Keys(api.Components.Schemas)) },
		"schema":  func(name string) schema { return api.Components.Schemas[name] },
		"anchor":  func(name string) string { return "schema-" + strings.ToLower(name) },
		"sorted":  func(m map[string]schema) []string { return slices.Sorted(maps.Keys(m)) },
		"codes":   func(m map[string]response) []string { return slices.Sorted(maps.Keys(m)) },
		"is":      slices.Contains[[]string],
	}
	var out bytes.Buffer
	if err := template.Must(template.New("api").Funcs(functions).Parse(apiText)).Execute(&out, map[string]any{"Info": api.Info, "Tags": tags}); err != nil {
		return fmt.Errorf("description of the HTTP API: %w", err)
	}
	p.extra = template.HTML(out.String())
	p.parts = []part{{Heading: p.Title, Level: 1, text: api.Info.Summary + " " + api.Info.Description}}
	for _, t := range tags {
		for _, o := range t.Operations {
			p.parts = append(p.parts, part{Heading: o.Method + " " + o.Path, Anchor: o.Anchor, Level: 2, text: o.Summary + " " + o.Description})
		}
	}
	b.pages[apiSource] = p
	return nil
}

// A tagged is the operations of a tag.
type tagged struct {
	Name, Description string
	Operations        []operation
}

// group returns the operations by tag, in the order of the tags and then of the paths.
func (a *openAPI) group(ids anchorIDs) []tagged {
	var all []tagged
	for _, tag := range a.Tags {
		all = append(all, tagged{Name: tag.Name, Description: tag.Description})
	}
	methods := []string{"get", "post", "put", "patch", "delete"}
	for _, path := range slices.Sorted(maps.Keys(a.Paths)) {
		for _, method := range methods {
			o, ok := a.Paths[path][method]
			if !ok {
				continue
			}
			o.Method, o.Path = strings.ToUpper(method), path
			o.Anchor = string(ids.Generate([]byte(method+" "+path), 0))
			i := slices.IndexFunc(all, func(t tagged) bool { return slices.Contains(o.Tags, t.Name) })
			if i < 0 {
				all = append(all, tagged{Name: cmp.Or(append(o.Tags, "other")[0], "other")})
				i = len(all) - 1
			}
			all[i].Operations = append(all[i].Operations, o)
		}
	}
	return slices.DeleteFunc(all, func(t tagged) bool { return len(t.Operations) == 0 })
}

func nameOf(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// parameter returns a parameter, following a reference.
func (a *openAPI) parameter(p parameter) parameter {
	if p.Ref != "" {
		return a.Components.Parameters[nameOf(p.Ref)]
	}
	return p
}

// response returns a response, following a reference.
func (a *openAPI) response(r response) response {
	if r.Ref != "" {
		return a.Components.Responses[nameOf(r.Ref)]
	}
	return r
}

// typeOf returns the type of a schema as HTML, with a link for a named one.
func (a *openAPI) typeOf(s schema) template.HTML {
	switch {
	case s.Ref != "":
		name := nameOf(s.Ref)
		return template.HTML(`<a href="#schema-` + template.HTMLEscapeString(strings.ToLower(name)) + `">` + template.HTMLEscapeString(name) + `</a>`)
	case s.Items != nil:
		return "array of " + a.typeOf(*s.Items)
	case len(s.AnyOf)+len(s.OneOf) > 0:
		var all []string
		for _, of := range slices.Concat(s.AnyOf, s.OneOf) {
			all = append(all, string(a.typeOf(of)))
		}
		return template.HTML(strings.Join(all, " or "))
	}
	return template.HTML(template.HTMLEscapeString(kindOf(s)))
}

// kindOf returns the type, the values and the default of a schema as text.
func kindOf(s schema) string {
	var text string
	switch kind := s.Type.(type) {
	case string:
		text = kind
	case []any:
		var all []string
		for _, k := range kind {
			all = append(all, fmt.Sprint(k))
		}
		text = strings.Join(all, " or ")
	}
	if len(s.Enum) > 0 {
		var all []string
		for _, v := range s.Enum {
			all = append(all, fmt.Sprint(v))
		}
		text = strings.Join(all, " or ")
	}
	if s.Default != nil {
		text += fmt.Sprintf(", default %v", s.Default)
	}
	return text
}

// paragraphs splits a description.
func paragraphs(text string) []string { return strings.Split(strings.TrimSpace(text), "\n\n") }
