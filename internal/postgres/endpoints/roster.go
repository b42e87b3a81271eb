package endpoints

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// rosterPage bounds the rows of one read of a tenant's endpoints.
	rosterPage = 500
	// rosterAge is the age from which a roster is read as a whole: it finds a deleted endpoint by its row, which
	// retention removes later.
	rosterAge = 10 * time.Minute
)

// Roster has the endpoints of a tenant at one version, in memory. A change of an endpoint changes it, and nothing
// else is read then. It is safe for concurrent use.
type Roster struct {
	renewing chan struct{} // holds an element while one caller of renew reads

	mu  sync.RWMutex
	now *roster
}

func newRoster() *Roster {
	return &Roster{renewing: make(chan struct{}, 1), now: &roster{byFilter: map[string][]*webhook.Endpoint{}}}
}

// roster is the state of a Roster.
type roster struct {
	head     rosterHead
	read     time.Time                      // of the last renewal, by this process's clock; zero: never
	all      []*webhook.Endpoint            // in the order of their ids; another slice after a change, because callers keep it
	byFilter map[string][]*webhook.Endpoint // in the order of their ids
	weight   int
}

// rosterHead is what belongs to all endpoints of a tenant.
type rosterHead struct {
	born    time.Time // of the tenant: another one may get its id after its deletion
	version int64
	policy  *retry.Policy // of the tenant, which its endpoints inherit; nil for none
}

func (h rosterHead) inherits(other rosterHead) bool {
	if h.policy == nil || other.policy == nil {
		return h.policy == other.policy
	}
	return h.policy.Equal(*other.policy)
}

// rosterRow is an endpoint that was changed.
type rosterRow struct {
	webhook.Endpoint

	changed int64 // the tenant's version with the change
	deleted bool
}

// All returns the endpoints in the order of their ids, and their version. They are shared and must not be changed.
func (r *Roster) All() ([]*webhook.Endpoint, int64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.now.all, r.now.head.version
}

// Read calls read with a view of the endpoints, which do not change meanwhile. It must be quick.
func (r *Roster) Read(read func(View)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	read(View{r.now})
}

// View is a Roster within Read.
type View struct{ of *roster }

// Version is the version of the tenant's endpoints.
func (v View) Version() int64 { return v.of.head.version }

// Endpoint returns an endpoint; nil if the tenant does not have it.
func (v View) Endpoint(id webhook.EndpointID) *webhook.Endpoint {
	if at, ok := find(v.of.all, id); ok {
		return v.of.all[at]
	}
	return nil
}

// Match returns the endpoints that subscribe to an event type in the order of their ids, at most the given number, beside those with filters,
// which may not want the event. Its time depends on what it returns, not on the number of endpoints.
func (v View) Match(eventType string, most int) []*webhook.Endpoint {
	var lists [][]*webhook.Endpoint
	longest := 0
	for _, filter := range webhook.MatchingFilters(eventType) {
		if list := v.of.byFilter[filter]; len(list) > 0 {
			lists, longest = append(lists, list), max(longest, len(list))
		}
	}
	if len(lists) == 0 {
		return nil
	}
	found := make([]*webhook.Endpoint, 0, min(longest, most))
	for sure := 0; sure < most; {
		var next *webhook.Endpoint
		for _, list := range lists {
			if len(list) > 0 && (next == nil || bytes.Compare(list[0].ID[:], next.ID[:]) < 0) {
				next = list[0]
			}
		}
		if next == nil {
			break
		}
		if found = append(found, next); next.Filter == nil {
			sure++
		}
		for i, list := range lists {
			if len(list) > 0 && list[0].ID == next.ID { // an endpoint may have several filters that match
				lists[i] = list[1:]
			}
		}
	}
	return found
}

// apply takes changes in.
func (r *roster) apply(rows []rosterRow) {
	for i := range rows {
		at, known := find(r.all, rows[i].ID)
		if known {
			r.unlist(r.all[at])
		}
		switch e := &rows[i].Endpoint; {
		case rows[i].deleted && known:
			r.all = slices.Delete(r.all, at, at+1)
		case rows[i].deleted:
		case known:
			r.all[at] = e
			r.list(e)
		default:
			r.all = slices.Insert(r.all, at, e)
			r.list(e)
		}
	}
}

func (r *roster) list(e *webhook.Endpoint) {
	r.weight += weight(e)
	for _, filter := range e.EventTypes {
		list := r.byFilter[filter]
		if at, there := find(list, e.ID); !there {
			r.byFilter[filter] = slices.Insert(list, at, e)
		}
	}
}

func (r *roster) unlist(e *webhook.Endpoint) {
	r.weight -= weight(e)
	for _, filter := range e.EventTypes {
		list := r.byFilter[filter]
		at, there := find(list, e.ID)
		switch {
		case there && len(list) == 1:
			delete(r.byFilter, filter)
		case there:
			r.byFilter[filter] = slices.Delete(list, at, at+1)
		}
	}
}

// weight is about the memory of an endpoint in KiB.
func weight(e *webhook.Endpoint) int {
	const perType = 16
	const compiled = 20 // bytes of a filter in memory for one of its text
	size := len(e.URL) + len(e.Description) + compiled*len(e.Filter.Text())
	for _, filter := range e.EventTypes {
		size += len(filter) + perType
	}
	for name, value := range e.Metadata {
		size += len(name) + len(value) + perType
	}
	return 1 + size>>10
}

// find returns the place of an endpoint in a list in the order of ids.
func find(list []*webhook.Endpoint, id webhook.EndpointID) (at int, there bool) {
	return slices.BinarySearchFunc(list, id, func(e *webhook.Endpoint, id webhook.EndpointID) int { return bytes.Compare(e.ID[:], id[:]) })
}

// renew brings the roster up to the state that is committed, or a later one, and returns its weight. CodeNotFound:
// there is no such tenant.
func (r *Roster) renew(ctx context.Context, s Reader, tenantID string) (weight int, err error) {
	select {
	case r.renewing <- struct{}{}:
	case <-ctx.Done():
		return 0, postgres.Translate("read endpoints of "+tenantID, ctx.Err())
	}
	defer func() { <-r.renewing }()
	begun := time.Now()
	r.mu.RLock()
	before := r.now.head
	recent := begun.Sub(r.now.read) < rosterAge
	r.mu.RUnlock()
	if recent {
		head, rows, err := s.endpointsSince(ctx, tenantID, before.version)
		if err != nil {
			return 0, err
		}
		if head.born.Equal(before.born) && head.version >= before.version && head.inherits(before) && len(rows) < rosterPage {
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(rows) > 0 {
				r.now.all = slices.Clone(r.now.all)
				r.now.apply(rows)
			}
			r.now.head, r.now.read = head, begun
			return r.now.weight, nil
		}
	}
	read, err := s.readRoster(ctx, tenantID)
	if err != nil {
		return 0, err
	}
	read.read = begun
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = read
	return read.weight, nil
}
