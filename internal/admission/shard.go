package admission

import (
	"container/list"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	shards = 128 // each with a lock of its own, unless hosts are limited
	// shardByte is the byte of an endpoint's id that decides about its shard. The last bytes are random. It is not the last one, which
	// decides about the lane: a process with few lanes would fill few shards.
	shardByte = 14
)

// shard is a part of the endpoints.
type shard struct {
	env       *environment
	lock      *lock
	own       lock
	size      int // how many endpoints it keeps
	endpoints map[webhook.EndpointID]*endpoint
	byUse     list.List // of endpoints, those that have not been used for longest in front
}

func (s *shard) unlock() { s.lock.unlock(s.env.config.OnCircuitChange) }

// endpoint finds or makes one and marks it as used.
func (s *shard) endpoint(id webhook.EndpointID, now time.Duration) *endpoint {
	e := s.endpoints[id]
	if e == nil {
		e = newEndpoint(id, s.env, s.lock, now)
		s.endpoints[id] = e
		e.use = s.byUse.PushBack(e)
	}
	e.usedAt = now
	s.byUse.MoveToBack(e.use)
	s.forgetIdle(e, now)
	return e
}

// forgetIdle looks at the few that have not been used for longest. So the work is spread over the
// calls, and nothing runs in the background. The one that is being used stays.
func (s *shard) forgetIdle(but *endpoint, now time.Duration) {
	for range 4 {
		e, _ := s.byUse.Front().Value.(*endpoint)
		over := len(s.endpoints) > s.size
		if e == but || !over && now-e.usedAt < idleAfter {
			return
		}
		s.byUse.MoveToBack(e.use) // to be looked at again
		if e.idle(now) && (over || e.forgettable(now)) {
			s.forget(e, now)
		}
	}
}

func (s *shard) forget(e *endpoint, now time.Duration) {
	s.byUse.Remove(e.use)
	delete(s.endpoints, e.id)
	e.setHost(now, nil)
}
