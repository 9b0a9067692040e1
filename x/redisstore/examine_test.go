package redisstore

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
)

func TestNodeState_Findings(t *testing.T) {
	t.Parallel()
	denied := errors.New("NOPERM")
	type set = map[string]string
	for _, c := range []struct {
		facts, settings set
		settingsErr     error
		check           string
		level           fleet.Level
		text            string
	}{
		{check: "persistence", level: fleet.LevelWarning, text: "none: after a restart"},
		{settingsErr: denied, check: "persistence", level: fleet.LevelWarning, text: "allow the user +config|get"},
		{settings: set{"save": "60 1"}, check: "persistence", level: fleet.LevelWarning, text: "snapshots only (save 60 1)"},
		{facts: set{"aof_enabled": "1"}, settings: set{"appendfsync": "everysec"}, check: "persistence", level: fleet.LevelOK, text: "append-only file, appendfsync everysec"},
		{facts: set{"aof_enabled": "1"}, settingsErr: denied, check: "persistence", level: fleet.LevelOK, text: "append-only file"},
		{facts: set{"aof_enabled": "1"}, settings: set{"appendfsync": "no"}, check: "persistence", level: fleet.LevelWarning, text: "appendfsync is no"},
		{facts: set{"aof_enabled": "1", "aof_last_write_status": "err"}, check: "persistence", level: fleet.LevelProblem, text: "the last write"},
		{facts: set{"rdb_last_bgsave_status": "err"}, settings: set{"stop-writes-on-bgsave-error": "yes"}, check: "persistence", level: fleet.LevelProblem, text: "its last snapshot failed"},
		{facts: set{"rdb_last_bgsave_status": "err"}, settings: set{"stop-writes-on-bgsave-error": "no"}, check: "persistence", level: fleet.LevelWarning, text: "none"},

		{facts: set{"maxmemory_policy": "noeviction"}, check: "eviction", level: fleet.LevelOK},
		{facts: set{"maxmemory_policy": "allkeys-lru", "maxmemory": "0"}, check: "eviction", level: fleet.LevelProblem, text: "once maxmemory is set"},
		{facts: set{"maxmemory_policy": "allkeys-lru", "maxmemory": "100"}, check: "eviction", level: fleet.LevelProblem, text: "set maxmemory-policy to noeviction"},
		{facts: set{"maxmemory": "100", "used_memory": "89"}, check: "memory", level: fleet.LevelOK, text: "89 %"},
		{facts: set{"maxmemory": "100", "used_memory": "91"}, check: "memory", level: fleet.LevelWarning, text: "OOM"},

		{check: "replication", level: fleet.LevelOK, text: "no replicas"},
		{settings: set{"min-replicas-to-write": "1"}, check: "replication", level: fleet.LevelProblem, text: "start its replicas"},
		{facts: set{"connected_slaves": "2"}, settingsErr: denied, check: "replication", level: fleet.LevelProblem, text: "it is unknown whether a failover is safe"},
		{facts: set{"connected_slaves": "2"}, settings: set{"min-replicas-to-write": "0"}, check: "replication", level: fleet.LevelProblem, text: "set it to 1 on all of them"},
		{facts: set{"connected_slaves": "4"}, settings: set{"min-replicas-to-write": "1"}, check: "replication", level: fleet.LevelProblem, text: "set it to 2 on all of them"},
		{facts: set{"connected_slaves": "2"}, settings: set{"min-replicas-to-write": "1", "min-replicas-max-lag": "11"}, check: "replication", level: fleet.LevelProblem, text: "set promotion=13s"},
		{facts: set{"connected_slaves": "2"}, settings: set{"min-replicas-to-write": "1", "min-replicas-max-lag": "10"}, check: "replication", level: fleet.LevelOK, text: "2 replicas"},

		{facts: set{"redis_version": "7.0.15"}, check: "version", level: fleet.LevelOK, text: "Redis 7.0.15"},
		{facts: set{"redis_version": "10.1.0"}, check: "version", level: fleet.LevelOK},
		{facts: set{"redis_version": "6.2.6"}, check: "version", level: fleet.LevelWarning, text: "upgrade"},
		{facts: set{"redis_version": "7.2.4", "valkey_version": "8.0.1"}, check: "version", level: fleet.LevelOK, text: "Valkey 8.0.1"},
	} {
		n := nodeState{facts: set{}, settings: set{}, settingsErr: c.settingsErr, promotion: 12 * time.Second}
		maps.Copy(n.facts, c.facts)
		maps.Copy(n.settings, c.settings)
		f := map[string]fleet.Finding{
			"persistence": n.persistence(), "eviction": n.eviction(), "memory": n.memory(), "replication": n.replication(), "version": version(n.facts),
		}[c.check]
		if f.Check != c.check || f.Level != c.level || !strings.Contains(f.String(), c.text) {
			t.Errorf("%v %v: %+v, want %s %q", c.facts, c.settings, f, c.level, c.text)
		}
	}
}
