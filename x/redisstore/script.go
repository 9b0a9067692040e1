package redisstore

import (
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// The parts of the Lua program, ordered by dependency.
var (
	//go:embed script/1_state.lua
	stateLua string
	//go:embed script/2_sessions.lua
	sessionsLua string
	//go:embed script/3_leases.lua
	leasesLua string
	//go:embed script/4_queue.lua
	queueLua string
	//go:embed script/5_write.lua
	writeLua string
	//go:embed script/batch.lua
	batchLua string
	//go:embed script/plain.lua
	plainLua string
	//go:embed script/apply.lua
	applyLua string
	//go:embed script/admin.lua
	adminLua string
)

// A program is the Lua code that servers run. Servers from version 7 on load it once, as
// a library, and call its functions. This is several times as fast as a script of this
// size, which creates all functions in each call. The name of the library contains a
// digest of the text, so that clients of several versions do not replace each other's
// library.
type program struct {
	library      string // text of the library
	apply, admin function
}

// A function is an entry point of the program.
type function struct {
	name        string
	script, sha string // for servers without libraries
}

func newFunction(name, script string) function {
	digest := sha1.Sum([]byte(script))
	return function{name, script, hex.EncodeToString(digest[:])}
}

// standard returns the program as it is. It is assembled on first use, because every
// start of a program that imports the package would pay for it.
var standard = sync.OnceValue(func() *program { return assemble(func(part string) string { return part }) })

// assemble builds a program from its parts. Tests use edit to change the parts.
func assemble(edit func(part string) string) *program {
	var text strings.Builder
	// Some parts are in blocks, since Lua allows at most 200 locals at a time.
	for _, part := range []string{
		stateLua, sessionsLua, leasesLua, queueLua, writeLua,
		"local apply, administer\ndo\n", batchLua, "local plain\ndo\n", plainLua, "end\n", applyLua, "end\ndo\n", adminLua, "end\n",
	} {
		text.WriteString(strip(edit(part)))
	}
	digest := sha256.Sum256([]byte(text.String()))
	name := "sema_" + hex.EncodeToString(digest[:6])
	p := &program{
		apply: newFunction(name+"_apply", text.String()+"scripted = true\nreturn apply(KEYS, ARGV)"),
		admin: newFunction(name+"_admin", text.String()+"scripted = true\nreturn administer(KEYS, ARGV)"),
	}
	text.WriteString("redis.register_function('" + p.apply.name + "', apply)\nredis.register_function('" + p.admin.name + "', administer)\n")
	p.library = "#!lua name=" + name + "\n" + text.String()
	return p
}

// strip removes indentation, empty lines and comments on lines of their own.
func strip(part string) string {
	var kept strings.Builder
	for line := range strings.Lines(part) {
		if line = strings.TrimLeft(line, " "); line != "\n" && !strings.HasPrefix(line, "--") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// A caller calls functions of the program on a server. It runs them as scripts if the
// server does not support libraries.
type caller struct {
	scripted atomic.Bool
	direct   atomic.Pointer[directCall] // the call that uses the connection of its own; nil: none
}

// call calls a function. If it may be called again after a timeout, it may be a direct call.
func (c *caller) call(ctx context.Context, client rueidis.Client, p *program, f function, repeatable bool, keys, args []string) rueidis.RedisResult {
	var direct *directCall
	if repeatable {
		direct = c.beginDirect(ctx)
	}
	if direct != nil {
		defer c.endDirect(direct)
		ctx = direct
	}
	do := func(command rueidis.Completed) rueidis.RedisResult {
		if direct == nil {
			command = command.ToPipe()
		}
		return client.Do(ctx, command)
	}
	eval := func() rueidis.RedisResult {
		result := do(client.B().Evalsha().Sha1(f.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
		if err, replied := rueidis.IsRedisErr(result.Error()); replied && err.IsNoScript() {
			return do(client.B().Eval().Script(f.script).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
		}
		return result
	}
	if c.scripted.Load() {
		return eval()
	}
	fcall := func() rueidis.RedisResult {
		return do(client.B().Fcall().Function(f.name).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	}
	result := fcall()
	if err := result.Error(); err == nil || !missing(err) {
		return result
	}
	switch err := p.install(ctx, client); {
	case err == nil:
		return fcall()
	case missing(err): // the server does not support libraries
		c.scripted.Store(true)
		return eval()
	default:
		return rueidis.NewErrorResult(err)
	}
}

// missing reports whether err indicates that the server lacks the library, does not
// support libraries, or does not allow this user to call them.
func missing(err error) bool {
	return isReply(err, "Function not found") || isReply(err, "unknown command") || isReply(err, "NOPERM")
}

// install loads the library into all primaries that reply, which replicate it. It fails if
// there are none: with the READONLY error if all nodes that reply are replicas.
func (p *program) install(ctx context.Context, client rueidis.Client) error {
	var readonly, failed error
	loaded := false
	for _, node := range client.Nodes() {
		err := node.Do(ctx, node.B().FunctionLoad().Replace().FunctionCode(p.library).Build().ToPipe()).Error()
		switch {
		case err == nil:
			loaded = true
		case isReply(err, "READONLY"):
			readonly = err
		default:
			failed = err
		}
	}
	if loaded {
		return nil
	}
	return cmp.Or(readonly, failed)
}
