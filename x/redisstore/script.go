package redisstore

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"strings"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// The semaphore in Lua, in the order in which the parts need each other.
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

// A program is the Lua that servers run. A server of version 7 is given it as a
// library, once, and calls its functions: that is several times as fast as to run
// a script of this size, which makes all functions anew at each call. The name of
// the library has a digest of the text in it, so that clients of several versions
// do not take each other's away.
type program struct {
	library      string // its text
	apply, admin verb
}

// A verb is one of its functions.
type verb struct {
	function string
	script   *rueidis.Lua // for servers without libraries
}

var standard = assemble(func(part string) string { return part })

// assemble puts a program together, of parts that may be edited first.
func assemble(edit func(part string) string) *program {
	var text strings.Builder
	// In blocks, since Lua knows no more than 200 locals at a time.
	for _, part := range []string{
		stateLua, sessionsLua, leasesLua, queueLua, writeLua,
		"local apply, administer\ndo\n", batchLua, "local plain\ndo\n", plainLua, "end\n", applyLua, "end\ndo\n", adminLua, "end\n",
	} {
		text.WriteString(strip(edit(part)))
	}
	digest := sha256.Sum256([]byte(text.String()))
	name := "sema_" + hex.EncodeToString(digest[:6])
	p := &program{
		apply: verb{name + "_apply", rueidis.NewLuaScript(text.String() + "scripted = true\nreturn apply(KEYS, ARGV)")},
		admin: verb{name + "_admin", rueidis.NewLuaScript(text.String() + "scripted = true\nreturn administer(KEYS, ARGV)")},
	}
	text.WriteString("redis.register_function('" + p.apply.function + "', apply)\nredis.register_function('" + p.admin.function + "', administer)\n")
	p.library = "#!lua name=" + name + "\n" + text.String()
	return p
}

// strip takes out comments that have a line of their own, and indentation.
func strip(part string) string {
	var kept strings.Builder
	for line := range strings.Lines(part) {
		if line = strings.TrimLeft(line, " "); line != "\n" && !strings.HasPrefix(line, "--") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// A caller calls functions of the program on a server, or runs them as scripts
// once it is known that there are no libraries.
type caller struct{ scripted atomic.Bool }

func (c *caller) call(ctx context.Context, client rueidis.Client, p *program, v verb, keys, args []string) rueidis.RedisResult {
	if c.scripted.Load() {
		return v.script.Exec(ctx, client, keys, args)
	}
	fcall := func() rueidis.RedisResult {
		return client.Do(ctx, client.B().Fcall().Function(v.function).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	}
	result := fcall()
	if err := result.Error(); err == nil || !missing(err) {
		return result
	}
	switch err := p.install(ctx, client); {
	case err == nil:
		return fcall()
	case missing(err): // there is nothing to install it in
		c.scripted.Store(true)
		return v.script.Exec(ctx, client, keys, args)
	default:
		return rueidis.NewErrorResult(err)
	}
}

// missing reports whether the server does not have the library, or does not know
// libraries or let this user call them.
func missing(err error) bool {
	return says(err, "Function not found") || says(err, "unknown command") || says(err, "NOPERM")
}

// install gives the library to all primaries. Replicas have it from them; if there
// is nothing but replicas, that is the error.
func (p *program) install(ctx context.Context, client rueidis.Client) error {
	var refused error
	taken := false
	for _, node := range client.Nodes() {
		err := node.Do(ctx, node.B().FunctionLoad().Replace().FunctionCode(p.library).Build()).Error()
		switch {
		case err == nil:
			taken = true
		case says(err, "READONLY"):
			refused = err
		default:
			return err
		}
	}
	if taken {
		return nil
	}
	return refused
}
