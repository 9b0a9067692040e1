package main

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	redsync "github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/sema-go/sema/internal/storetest/redistest"
)

// redisRivals are common alternatives on Redis.
type redisRivals struct {
	server  func() *redistest.Server
	goredis func() *redis.Client
	rueidis func() rueidis.Client
	locker  func() rueidislock.Locker
}

func newRedisRivals(server func() *redistest.Server) *redisRivals {
	r := &redisRivals{server: server}
	r.goredis = sync.OnceValue(func() *redis.Client { return newGoRedis(server().Address) })
	r.rueidis = sync.OnceValue(func() rueidis.Client {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server().Address}, DisableCache: true})
		must(err)
		return c
	})
	r.locker = sync.OnceValue(func() rueidislock.Locker {
		l, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: rueidis.ClientOption{InitAddress: []string{server().Address}}, KeyMajority: 1})
		must(err)
		return l
	})
	return r
}

func newGoRedis(address string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: address, PoolSize: 100})
}

// sortedSet is a semaphore as it is often written by hand: a sorted set
// contains the holders by expiry, and a script counts them. It does not wait
// for permits.
type sortedSet struct {
	client *redis.Client
	key    string
	most   int
}

var sortedSetAcquire = redis.NewScript(`
local count = redis.call('ZCOUNT', KEYS[1], ARGV[4], '+inf')
if count < tonumber(ARGV[1]) then
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[4] - 1)
  redis.call('ZADD', KEYS[1], ARGV[3], ARGV[2])
  return 1
end
return 0`)

func (s sortedSet) tryAcquire() (token string, ok bool) {
	token = strconv.FormatUint(rand.Uint64(), 36)
	now := time.Now().UnixMilli()
	got, err := sortedSetAcquire.Run(context.Background(), s.client, []string{s.key}, s.most, token, now+15_000, now).Int()
	must(err)
	return token, got == 1
}

func (s sortedSet) release(token string) {
	must(s.client.ZRem(context.Background(), s.key, token).Err())
}

func (r *redisRivals) pairs(goroutines, each int) func() sample {
	return func() sample {
		s := sortedSet{r.goredis(), "rival-pairs", 1000}
		return concurrently(goroutines, each, func(int) {
			token, ok := s.tryAcquire()
			if !ok {
				panic("the rival denied a permit although some are free")
			}
			s.release(token)
		})
	}
}

func (r *redisRivals) queue() sample {
	return runQueue("rival", r.server().Address, "rival-queue-"+strconv.FormatUint(rand.Uint64(), 36))
}

// rivalQueue retries after 50 to 200 ms.
func rivalQueue(address, name string) func(work func()) {
	s := sortedSet{newGoRedis(address), name, queuePermits}
	return func(work func()) {
		for {
			if token, ok := s.tryAcquire(); ok {
				work()
				s.release(token)
				return
			}
			time.Sleep(50*time.Millisecond + rand.N(150*time.Millisecond))
		}
	}
}

func (r *redisRivals) rueidislock() sample {
	const times = 2000
	locker := r.locker()
	return measure(times, func() {
		for range times {
			_, cancel, err := locker.WithContext(context.Background(), "rival-mutex")
			must(err)
			cancel()
		}
	})
}

func (r *redisRivals) redsync() sample {
	const times = 2000
	mutex := redsync.New(redsyncpool.NewPool(r.goredis())).NewMutex("rival-redsync")
	return measure(times, func() {
		for range times {
			must(mutex.Lock())
			_, err := mutex.Unlock()
			must(err)
		}
	})
}
