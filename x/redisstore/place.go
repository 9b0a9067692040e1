package redisstore

import (
	"hash/fnv"
	"strconv"
	"sync"
	"sync/atomic"
)

// A place is the location of a semaphore: its server, and the keys that a script
// gets. All other keys of the semaphore begin with the first.
type place struct {
	server *server
	name   string
	keys   []string
	epoch  *atomic.Int64 // of the run of the server that replied last, 0 for none
}

// place locates a semaphore.
func (s *Store) place(name string) place {
	tag, server := s.options.Prefix+name, s.serverOf(name)
	at := place{server: server, name: name, keys: []string{"{" + tag + "}", s.options.Prefix + "server"}, epoch: &server.epochs[0]}
	if s.options.Cluster {
		slot := slot(tag)
		at.keys[1] += "{" + tagOf(slot) + "}"
		at.epoch = &server.epochs[slot]
	}
	return at
}

// serverOf returns the server of a semaphore, by rendezvous hashing: adding or removing
// a server moves only the semaphores of that server.
func (s *Store) serverOf(name string) *server {
	best, most := s.servers[0], uint64(0)
	for _, server := range s.servers {
		if len(s.servers) == 1 {
			break
		}
		h := fnv.New64a()
		h.Write([]byte(server.address + "\x00" + name))
		if score := mix(h.Sum64()); score > most {
			best, most = server, score
		}
	}
	return best
}

// mix finalizes a hash as murmur3 does: the high bits of FNV hashes are much alike.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

func (s *Store) promotion() int64 { return s.options.Promotion.Microseconds() }

// slots is the number of slots of a cluster.
const slots = 16384

// slot returns the slot of a hash tag in a cluster.
func slot(tag string) int {
	crc := uint16(0)
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return int(crc % slots)
}

// tags returns a hash tag for each slot, so that the slot of each semaphore can have a
// server key.
var tags = sync.OnceValue(func() *[slots]string {
	var all [slots]string
	for found, n := 0, 0; found < slots; n++ {
		tag := strconv.Itoa(n)
		if at := slot(tag); all[at] == "" {
			all[at] = tag
			found++
		}
	}
	return &all
})

func tagOf(slot int) string { return tags()[slot] }
