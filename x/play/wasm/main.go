//go:build js && wasm

// Command wasm is the program of the playground. It runs in a worker of the browser
// (site/files/worker.js), which calls the function sema with a request and receives events by
// the function semaEmit.
package main

import (
	"encoding/json"
	"runtime/debug"
	"syscall/js"

	"github.com/sema-go/sema/x/play"
)

// A request is a call of the page.
type request struct {
	Lesson  string        `json:"lesson"`  // start this lesson
	Command string        `json:"command"` // or execute this command of it
	With    play.Settings `json:"with"`
}

func main() {
	debug.SetGCPercent(200) // collections are visible as pauses of the animation
	requests := make(chan request, 16)
	js.Global().Set("sema", js.FuncOf(func(_ js.Value, args []js.Value) any {
		var r request
		if err := json.Unmarshal([]byte(args[0].String()), &r); err != nil {
			return err.Error()
		}
		select {
		case requests <- r:
			return ""
		default:
			return "too many requests at once"
		}
	}))
	lessons, err := json.Marshal(play.Lessons())
	if err != nil {
		panic(err)
	}
	js.Global().Call("semaReady", string(lessons))
	serve(requests)
}

// serve executes requests in order: starting a lesson waits until the last one has ended.
func serve(requests <-chan request) {
	var stage *play.Stage
	for r := range requests {
		var err error
		switch {
		case r.Lesson != "":
			if stage != nil {
				stage.Stop()
			}
			stage, err = start(r)
		case stage != nil:
			err = stage.Do(r.Command, r.With)
		}
		if err != nil {
			emit(play.Event{Kind: play.KindNote, Caption: err.Error()})
		}
	}
}

func start(r request) (*play.Stage, error) {
	lesson, err := play.Find(r.Lesson)
	if err != nil {
		return nil, err
	}
	js.Global().Call("semaStarted")
	return lesson.Start(r.With, emit)
}

func emit(e play.Event) {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	js.Global().Call("semaEmit", string(text))
}
