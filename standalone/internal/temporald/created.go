package temporald

import (
	"maps"
	"slices"
	"sync"
	"time"

	"go.temporal.io/server/common/persistence"
)

const (
	// createdFor is for how long the state of a new workflow is kept. It is asked for when its first task is done,
	// within milliseconds; of one that goes on for longer the server knows by then.
	createdFor = 10 * time.Second
	// mostCreated bounds how many are kept.
	mostCreated = 1000
)

// created are the states of workflows that this process has just created. The server itself keeps none that it only
// creates, and reads each again for its first task. Each is given out once, and only if nothing here has changed it since.
//
// The server drops what it keeps itself when it loses a shard; these stay. So where another server had the shard and lost
// it again, all within createdFor, what is given out may be older than what that one has written. Whatever is made of it is
// refused when it is written, for its db_record_version, and the server then reads again, from the database.
//
// It is safe for concurrent use.
type created struct {
	now func() time.Time

	mu     sync.Mutex
	swept  time.Time
	states map[run]createdState
}

type createdState struct {
	state *persistence.InternalWorkflowMutableState // nil while it is being written
	at    time.Time
}

func newCreated() *created { return &created{now: time.Now, states: map[run]createdState{}} }

// begin announces a workflow before it is written, so that a change right after that is not missed.
func (c *created) begin(r run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now.Sub(c.swept) >= createdFor {
		maps.DeleteFunc(c.states, func(_ run, s createdState) bool { return now.Sub(s.at) >= createdFor })
		c.swept = now
	}
	if len(c.states) < mostCreated {
		c.states[r] = createdState{at: now}
	}
}

// finish keeps what was written, unless it was changed meanwhile.
func (c *created) finish(r run, s *persistence.InternalWorkflowSnapshot) {
	state := &persistence.InternalWorkflowMutableState{
		ActivityInfos: s.ActivityInfos, TimerInfos: s.TimerInfos, ChildExecutionInfos: s.ChildExecutionInfos,
		RequestCancelInfos: s.RequestCancelInfos, SignalInfos: s.SignalInfos, ChasmNodes: s.ChasmNodes,
		SignalRequestedIDs: slices.Collect(maps.Keys(s.SignalRequestedIDs)),
		ExecutionInfo:      s.ExecutionInfoBlob, ExecutionState: s.ExecutionStateBlob,
		NextEventID: s.NextEventID, DBRecordVersion: s.DBRecordVersion,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, announced := c.states[r]; announced {
		c.states[r] = createdState{state: state, at: c.now()}
	}
}

// take gives a state out; nil when there is none.
func (c *created) take(r run) *persistence.InternalWorkflowMutableState {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.states[r]
	if s.state == nil {
		return nil
	}
	delete(c.states, r)
	if c.now().Sub(s.at) >= createdFor {
		return nil
	}
	return s.state
}

// forget is for who changes a workflow.
func (c *created) forget(r run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.states, r)
}
