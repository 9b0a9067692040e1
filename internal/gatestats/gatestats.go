// Package gatestats finds the statistics of gates whose types are not known to the caller.
// The statistics of every gate are a sema.Stats, or a struct that embeds it.
package gatestats

import (
	"reflect"

	"github.com/sema-go/sema"
)

// Of returns a function that returns the statistics of a gate: the sema.Stats, and the
// result of its method Stats as it is. It returns nil if the gate has no such method. The
// packages of some gates import those that call Of, and not the other way around, so the
// embedded sema.Stats is found by reflection, once.
func Of(gate any) func() (sema.Stats, any) {
	if g, ok := gate.(interface{ Stats() sema.Stats }); ok {
		return func() (sema.Stats, any) {
			st := g.Stats()
			return st, st
		}
	}
	v := reflect.ValueOf(gate)
	if !v.IsValid() {
		return nil
	}
	method := v.MethodByName("Stats")
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 || method.Type().Out(0).Kind() != reflect.Struct {
		return nil
	}
	field, ok := method.Type().Out(0).FieldByName("Stats")
	if !ok || !field.Anonymous || field.Type != reflect.TypeFor[sema.Stats]() {
		return nil
	}
	return func() (sema.Stats, any) {
		out := method.Call(nil)[0]
		return out.FieldByIndex(field.Index).Interface().(sema.Stats), out.Interface()
	}
}
