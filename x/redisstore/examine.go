package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// examine looks for what an operator should know.
func (s *Store) examine(ctx context.Context) (warnings []string) {
	for _, server := range s.servers {
		for address, node := range server.now().Nodes() {
			for _, found := range examineNode(ctx, node) {
				warnings = append(warnings, fmt.Sprintf("redis at %s: %s", address, found))
			}
		}
	}
	return warnings
}

func examineNode(ctx context.Context, node rueidis.Client) (found []string) {
	info, err := node.Do(ctx, node.B().Info().Section("replication", "memory").Build()).ToString()
	if err != nil {
		return []string{fmt.Sprintf("it cannot be told whether a failover is safe: INFO: %v", err)}
	}
	facts := parseInfo(info)
	if facts["role"] != "master" {
		return nil
	}
	if policy := facts["maxmemory_policy"]; policy != "" && policy != "noeviction" && facts["maxmemory"] != "0" {
		found = append(found, fmt.Sprintf("maxmemory-policy is %s: when memory is short it may forget who holds what; set it to noeviction", policy))
	}
	replicas, _ := strconv.Atoi(facts["connected_slaves"])
	if replicas == 0 {
		return found
	}
	set, err := node.Do(ctx, node.B().ConfigGet().Parameter("min-replicas-to-write").Build()).AsStrMap()
	if err != nil {
		return append(found, fmt.Sprintf("it has %d replicas, and it cannot be told whether a failover is safe: CONFIG GET min-replicas-to-write: %v", replicas, err))
	}
	// Who writes needs itself and so many others: if that is more than half of all,
	// two cannot write at the same time.
	if enough, _ := strconv.Atoi(set["min-replicas-to-write"]); 2*(1+enough) <= 1+replicas {
		found = append(found, fmt.Sprintf("it has %d replicas and min-replicas-to-write is %d: a primary that is cut off goes on granting beside the one that is promoted; "+
			"set it to %d on all of them", replicas, enough, (1+replicas)/2))
	}
	return found
}

// parseInfo reads what INFO says.
func parseInfo(info string) map[string]string {
	facts := map[string]string{}
	for line := range strings.SplitSeq(info, "\r\n") {
		if key, value, ok := strings.Cut(line, ":"); ok {
			facts[key] = value
		}
	}
	return facts
}
