package etcdstore

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// keys are what is stored under a prefix:
//
//	head/NAME                    a semaphore: how long its log is, and how it is, for people
//	log/NAME NUMBER              its entries
//	part/NAME NUMBER ATTEMPT I   of an entry that is too large for one value
//	call/NAME PROCESS            batches that a process asks others to take along
//	hint/INSTANCE                the semaphore on which an instance has news, last
//	floor                        after what number semaphores begin that are made again
//
// Names have no spaces.
type keys struct{ prefix string }

func (k keys) head(name string) string { return k.prefix + "head/" + name }

func (k keys) log(name string) string { return k.prefix + "log/" + name + " " }

func (k keys) entry(name string, number uint64) string {
	return fmt.Sprintf("%s%012d", k.log(name), number)
}

func (k keys) parts(name string) string { return k.prefix + "part/" + name + " " }

func (k keys) partsOf(name string, number uint64, attempt string) string {
	return fmt.Sprintf("%s%012d %s ", k.parts(name), number, attempt)
}

func (k keys) part(name string, number uint64, attempt string, i int) string {
	return fmt.Sprintf("%s%06d", k.partsOf(name, number, attempt), i)
}

func (k keys) calls(name string) string { return k.prefix + "call/" + name + " " }

func (k keys) call(name, process string) string { return k.calls(name) + process }

func (k keys) hint(instance string) string { return k.prefix + "hint/" + url.PathEscape(instance) }

func (k keys) floor() string { return k.prefix + "floor" }

// numberOf is that of an entry, by its key.
func numberOf(key string) (uint64, error) {
	return strconv.ParseUint(key[strings.LastIndexByte(key, ' ')+1:], 10, 64)
}

// end is where the keys that begin with a prefix end.
func end(prefix string) string { return clientv3.GetPrefixRangeEnd(prefix) }
