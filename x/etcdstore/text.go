package etcdstore

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// encode returns readable JSON.
func encode(value any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(fmt.Sprintf("etcdstore: %T has no JSON: %v", value, err)) // not reached: all types have
	}
	return string(bytes.TrimRight(text.Bytes(), "\n"))
}

// largeText is the size in bytes from which a text is compressed. Rows are similar and
// compress well, and etcd writes every byte of every version twice and keeps it until it is
// compacted. Smaller texts stay readable.
const largeText = 2 << 10

// pack returns the JSON of a value, compressed if it is large.
func pack(value any) string {
	text := encode(value)
	if len(text) < largeText {
		return text
	}
	var packed bytes.Buffer
	w := compressors.Get().(*gzip.Writer)
	defer compressors.Put(w)
	w.Reset(&packed)
	io.WriteString(w, text) // into a buffer, which does not fail
	w.Close()
	return packed.String()
}

var compressors = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err)
	}
	return w
}}

// unpack reads what pack has written.
func unpack(text []byte, value any) error {
	if len(text) == 0 || text[0] == '{' || text[0] == '[' {
		return json.Unmarshal(text, value)
	}
	r, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return err
	}
	whole, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return json.Unmarshal(whole, value)
}
