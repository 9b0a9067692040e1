package redisstore

import (
	"hash/fnv"
	"strconv"
	"sync"
	"sync/atomic"
)

// A location identifies where a semaphore is stored: the server, and the keys that are
// passed to the program. All other keys of the semaphore begin with the first.
type location struct {
	server *server
	name   string
	keys   []string
	epoch  *atomic.Int64 // epoch in the server's last reply; 0 before the first
}

// location returns the location of a semaphore.
func (s *Store) location(name string) location {
	tag, server := s.options.Prefix+name, s.servers[0]
	if len(s.servers) > 1 {
		server = s.serverOf(name)
	}
	at := location{server: server, name: name, keys: []string{"{" + tag + "}", s.options.Prefix + "server"}, epoch: &server.epochs[0]}
	if s.options.Cluster {
		slot := slot(tag)
		at.keys[1] += "{" + tagOf(slot) + "}"
		at.epoch = &server.epochs[slot]
	}
	return at
}

// serverOf selects the server of a semaphore by rendezvous hashing, so that adding or
// removing a server moves only the semaphores of that server.
func (s *Store) serverOf(name string) *server {
	best, most := s.servers[0], uint64(0)
	for _, server := range s.servers {
		h := fnv.New64a()
		h.Write([]byte(server.address + "\x00" + name))
		if score := mix(h.Sum64()); score > most {
			best, most = server, score
		}
	}
	return best
}

// mix applies the murmur3 finalizer, since the high bits of FNV hashes are poorly
// distributed.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// slots is the number of hash slots of a cluster.
const slots = 16384

// slot returns the hash slot of a hash tag: its CRC16 modulo the number of slots.
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

// tags returns a hash tag for each slot. The server key of a semaphore in a cluster has
// the tag of the semaphore's slot.
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
