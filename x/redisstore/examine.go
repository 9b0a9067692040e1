package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/sema-go/sema/fleet"
)

// Ping implements [fleet.Examiner]. It uses only the first of several servers.
func (s *Store) Ping(ctx context.Context) (time.Time, error) {
	server := s.servers[0]
	client := server.current()
	reply, err := client.Do(ctx, client.B().Time().Build().ToPipe()).AsIntSlice()
	switch {
	case err != nil:
		return time.Time{}, explain(ctx, server.address, err)
	case len(reply) != 2:
		return time.Time{}, errUnpack
	}
	return time.Unix(reply[0], reply[1]*int64(time.Microsecond)), nil
}

// Examine implements [fleet.Examiner]. If there are several nodes, each finding begins
// with the address of its node.
func (s *Store) Examine(ctx context.Context) (all []fleet.Finding, err error) {
	nodes := s.examineNodes(ctx)
	for _, n := range nodes {
		for _, f := range n.findings {
			if len(nodes) > 1 {
				f.Seen = n.address + ": " + f.Seen
			}
			all = append(all, f)
		}
	}
	return all, nil
}

// nodeFindings are the findings about one node.
type nodeFindings struct {
	address  string
	findings []fleet.Finding
}

func (s *Store) examineNodes(ctx context.Context) (all []nodeFindings) {
	for _, server := range s.servers {
		nodes := server.current().Nodes()
		for _, address := range slices.Sorted(maps.Keys(nodes)) {
			all = append(all, nodeFindings{address, s.examineNode(ctx, nodes[address])})
		}
	}
	return all
}

// warningsOf returns the findings that are problems, as text for [Store.Warnings].
func warningsOf(nodes []nodeFindings) (texts []string) {
	for _, n := range nodes {
		texts = append(texts, fleet.Problems("redis at "+n.address, n.findings)...)
	}
	return texts
}

// rejectEviction returns an error if a node may evict keys. The policy comes from INFO,
// which managed servers allow even if they deny CONFIG.
func (s *Store) rejectEviction(nodes []nodeFindings) error {
	if s.options.AllowEviction {
		return nil
	}
	for _, n := range nodes {
		for _, f := range n.findings {
			if f.Check == evictionCheck && f.Level == fleet.LevelProblem {
				return fmt.Errorf("%w: redis at %s: %s (hint: eviction=allow opens it with a warning)", fleet.FaultSettings, n.address, f)
			}
		}
	}
	return nil
}

const evictionCheck = "eviction"

func (s *Store) examineNode(ctx context.Context, node rueidis.Client) []fleet.Finding {
	info, err := node.Do(ctx, node.B().Info().Build().ToPipe()).ToString()
	if err != nil {
		return []fleet.Finding{{Check: "settings", Level: fleet.LevelProblem, Seen: fmt.Sprintf("unknown whether a failover is safe: INFO: %v", err), Advice: "allow the user +info"}}
	}
	facts := parseInfo(info)
	switch {
	case facts["role"] == "slave" && s.options.Cluster:
		return nil
	case facts["role"] != "master":
		return []fleet.Finding{version(facts), {Check: "role", Level: fleet.LevelProblem,
			Seen: fmt.Sprintf("it is a replica of %s:%s and rejects writes", facts["master_host"], facts["master_port"]), Advice: "use the address of the primary, or sentinel="}}
	case facts["cluster_enabled"] == "1" && !s.options.Cluster:
		return []fleet.Finding{version(facts), {Check: "role", Level: fleet.LevelProblem, Seen: "it is a node of a cluster, and has only some of the keys", Advice: "use cluster=1"}}
	}
	n := nodeState{facts: facts, promotion: s.options.Promotion}
	n.settings, n.settingsErr = readSettings(ctx, node)
	return []fleet.Finding{version(facts), n.persistence(), n.eviction(), n.memory(), n.replication()}
}

// readSettings reads only the settings that are checked, since others contain passwords.
// It reads them one at a time, since servers before version 7 do not return several.
func readSettings(ctx context.Context, node rueidis.Client) (map[string]string, error) {
	settings := map[string]string{}
	for _, name := range []string{"save", "appendfsync", "stop-writes-on-bgsave-error", "min-replicas-to-write", "min-replicas-max-lag"} {
		one, err := node.Do(ctx, node.B().ConfigGet().Parameter(name).Build().ToPipe()).AsStrMap()
		if err != nil {
			return nil, err
		}
		maps.Copy(settings, one)
	}
	return settings, nil
}

// A nodeState is the state that a primary reports with INFO and CONFIG GET.
type nodeState struct {
	facts       map[string]string // INFO
	settings    map[string]string // CONFIG GET
	settingsErr error             // why there are no settings
	promotion   time.Duration
}

// number returns a numeric field of INFO, or 0 if it is missing.
func (n nodeState) number(fact string) int64 {
	v, _ := strconv.ParseInt(n.facts[fact], 10, 64)
	return v
}

func (n nodeState) setting(name string) int {
	v, _ := strconv.Atoi(n.settings[name])
	return v
}

func version(facts map[string]string) fleet.Finding {
	f := fleet.Finding{Check: "version", Level: fleet.LevelOK, Seen: "Redis " + facts["redis_version"]}
	if v := facts["valkey_version"]; v != "" {
		f.Seen = "Valkey " + v
	}
	if major, _, _ := strings.Cut(facts["redis_version"], "."); len(major) == 1 && major < "7" {
		f.Level, f.Advice = fleet.LevelWarning, "upgrade it: servers from version 7 on run the program as a library, several times as fast"
	}
	return f
}

// persistence checks the persistence settings. Weak settings are only a warning: a server
// that has lost data grants nothing for a TTL, so the capacity is never exceeded.
func (n nodeState) persistence() fleet.Finding {
	f := fleet.Finding{Check: "persistence", Level: fleet.LevelWarning}
	const effect = "after a restart, holders have lost their permits and none are granted for a TTL"
	aof, save := n.facts["aof_enabled"] == "1", n.settings["save"]
	switch {
	case n.facts["aof_last_write_status"] == "err" && aof:
		f.Level, f.Seen, f.Advice = fleet.LevelProblem, "the last write to its append-only file failed", "free space on its disk, or check it for errors"
	case n.facts["rdb_last_bgsave_status"] == "err" && n.settings["stop-writes-on-bgsave-error"] == "yes":
		f.Level, f.Seen, f.Advice = fleet.LevelProblem, "its last snapshot failed, so it rejects writes", "free space on its disk, or check it for errors"
	case aof && n.settings["appendfsync"] == "no":
		f.Seen, f.Advice = "append-only file, but appendfsync is no: a crash of its machine loses writes that the kernel has not flushed", "set appendfsync to everysec"
	case aof:
		f.Level, f.Seen = fleet.LevelOK, "append-only file"
		if how := n.settings["appendfsync"]; how != "" {
			f.Seen += ", appendfsync " + how
		}
	case n.settingsErr != nil:
		f.Seen, f.Advice = "no append-only file; "+effect, "set appendonly to yes, and allow the user +config|get"
	case save == "":
		f.Seen, f.Advice = "none: "+effect, "set appendonly to yes, so that holders keep their permits"
	default:
		f.Seen, f.Advice = fmt.Sprintf("snapshots only (save %s), which lack all writes since the last one: ", save)+effect, "set appendonly to yes, so that holders keep their permits"
	}
	return f
}

func (n nodeState) eviction() fleet.Finding {
	policy := n.facts["maxmemory_policy"]
	if policy == "" || policy == "noeviction" {
		return fleet.Finding{Check: evictionCheck, Level: fleet.LevelOK, Seen: "noeviction"}
	}
	f := fleet.Finding{Check: evictionCheck, Level: fleet.LevelProblem, Advice: "set maxmemory-policy to noeviction, in redis.conf and with CONFIG SET, or in the parameters of a managed server",
		Seen: fmt.Sprintf("maxmemory-policy is %s: it may evict leases when memory is short", policy)}
	if n.facts["maxmemory"] == "0" {
		f.Seen = fmt.Sprintf("maxmemory-policy is %s: it may evict leases once maxmemory is set (it is not set now)", policy)
	}
	return f
}

func (n nodeState) memory() fleet.Finding {
	used, most := n.number("used_memory"), n.number("maxmemory")
	f := fleet.Finding{Check: "memory", Level: fleet.LevelOK, Seen: fmt.Sprintf("%s used, no maxmemory", n.facts["used_memory_human"])}
	if most > 0 {
		f.Seen = fmt.Sprintf("%d %% of %s used", 100*used/most, n.facts["maxmemory_human"])
		switch {
		case used-n.number("mem_not_counted_for_evict") > most:
			f.Level, f.Advice = fleet.LevelProblem, "every acquire is rejected (OOM): raise maxmemory, or find what uses the memory"
		case used > most/10*9:
			f.Level, f.Advice = fleet.LevelWarning, "raise maxmemory, or find what uses the memory; when it is full, every acquire is rejected (OOM)"
		}
	}
	return f
}

func (n nodeState) replication() fleet.Finding {
	f := fleet.Finding{Check: "replication", Level: fleet.LevelProblem}
	replicas := int(n.number("connected_slaves"))
	// A primary accepts writes while at least minReplicas replicas follow it. If that
	// group, with the primary, is more than half of all servers, two primaries cannot
	// accept writes at the same time.
	minReplicas, lag := n.setting("min-replicas-to-write"), time.Duration(n.setting("min-replicas-max-lag"))*time.Second
	switch {
	case replicas == 0 && minReplicas > 0:
		f.Seen, f.Advice = fmt.Sprintf("it has no replicas and min-replicas-to-write is %d: it rejects writes", minReplicas), "start its replicas"
	case replicas == 0:
		f.Level, f.Seen = fleet.LevelOK, "it has no replicas: there is nothing to fail over to"
	case n.settingsErr != nil:
		f.Seen = fmt.Sprintf("it has %d replicas, and it is unknown whether a failover is safe: CONFIG GET: %v", replicas, n.settingsErr)
		f.Advice = "allow the user +config|get"
	case 2*(1+minReplicas) <= 1+replicas:
		f.Seen = fmt.Sprintf("it has %d replicas and min-replicas-to-write is %d: a primary that is cut off continues to grant permits beside the one that is promoted", replicas, minReplicas)
		f.Advice = fmt.Sprintf("set it to %d on all of them", (1+replicas)/2)
	case n.promotion < lag+2*time.Second:
		f.Seen = fmt.Sprintf("min-replicas-max-lag is %v and promotion=%v: a primary that is cut off may grant permits for longer than the promoted one waits", lag, n.promotion)
		f.Advice = fmt.Sprintf("set promotion=%v in the URL", lag+2*time.Second)
	default:
		f.Level, f.Seen = fleet.LevelOK, fmt.Sprintf("%d replicas, min-replicas-to-write %d, max-lag %v", replicas, minReplicas, lag)
	}
	return f
}

// parseInfo parses the reply to INFO.
func parseInfo(info string) map[string]string {
	facts := map[string]string{}
	for line := range strings.SplitSeq(info, "\r\n") {
		if key, value, ok := strings.Cut(line, ":"); ok {
			facts[key] = value
		}
	}
	return facts
}
