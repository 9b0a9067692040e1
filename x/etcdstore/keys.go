package etcdstore

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// keys builds the keys of a store, which begin with a prefix:
//
//	head/NAME                    a semaphore: the length of its log, configuration and load
//	log/NAME NUMBER              its entries
//	part/NAME NUMBER ATTEMPT I   of an entry that is too large for one value
//	batch/NAME PROCESS           batches that a process publishes for others to apply
//	notify/INSTANCE              the last semaphore on which an instance was notified
//	floor                        the highest Seq of semaphores that were deleted
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

func (k keys) batches(name string) string { return k.prefix + "batch/" + name + " " }

func (k keys) batch(name, process string) string { return k.batches(name) + process }

func (k keys) notify(instance string) string { return k.prefix + "notify/" + url.PathEscape(instance) }

func (k keys) floor() string { return k.prefix + "floor" }

// numberOf returns the number of an entry by its key.
func numberOf(key string) (uint64, error) {
	return strconv.ParseUint(key[strings.LastIndexByte(key, ' ')+1:], 10, 64)
}

// end returns the end of the range of keys that begin with a prefix.
func end(prefix string) string { return clientv3.GetPrefixRangeEnd(prefix) }
