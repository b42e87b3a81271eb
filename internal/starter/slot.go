package starter

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// company is for how long after a tenant's start others take it into account.
	company = time.Second
	// largePart of a workflow's width is a large start: what is done at once, others wait for.
	largePart = 4
	// maxRest bounds the rest after a start.
	maxRest = 25 * time.Millisecond
)

// slot is one start slot: it makes one start after another, of all that waits.
type slot struct {
	*Starter

	latest, other seen // the tenants that started something last
}

type seen struct {
	tenant string
	at     time.Time
}

// serve takes all that waits, up to a workflow's width, as one start: at ease that is a
// single delivery, and under load many share.
func (d *Starter) serve() {
	s := slot{Starter: d}
	s.serve()
	d.startRest()
}

// startRest starts, at the end, what was sent eagerly. All else stays in the outbox.
func (d *Starter) startRest() {
	var own []webhook.Start
	for start, ok := d.queue.Next(); ok; start, ok = d.queue.Next() {
		if start.OwnWorkflow {
			own = append(own, start)
		}
	}
	d.start(own)
	d.startGathered(true)
}

func (s *slot) serve() {
	for !s.stopping() { // select would take either
		select {
		case <-s.stopped:
			return
		case <-s.queue.Ready:
			batch := s.gather()
			loud := s.crowdedBy(batch)
			switch {
			case len(batch) == 0: // another was faster
			case loud != "":
				s.beside(loud, batch)
			default:
				begun := time.Now()
				s.startAll(batch)
				s.rest(time.Since(begun))
			}
		case <-s.gatherings.ready:
			s.startGathered(false)
		}
	}
}

// rest waits for as long as a start took, unless there is enough for a full one: what comes
// meanwhile shares the next start. Without it a start loop that is quick shares little, and what
// it starts uses up the CPU. Several slots do not rest.
func (s *slot) rest(took time.Duration) {
	if s.StartSlots > 1 {
		return
	}
	defer s.queue.Wake() // for what has come
	over := time.NewTimer(min(took, maxRest))
	defer over.Stop()
	for s.queue.Len() < s.Width {
		select {
		case <-over.C:
			return
		case <-s.stopped:
			return
		case <-s.queue.Ready: // one more
		}
	}
}

// crowdedBy is the tenant that has most of a large batch while others have something to
// send as well; "" when there is none. Several slots are beside one another anyway.
func (s *slot) crowdedBy(batch []webhook.Start) (loud string) {
	now := time.Now()
	count := map[string]int{}
	for i := range batch {
		tenant := batch[i].TenantID
		count[tenant]++
		if count[tenant] > len(batch)/2 {
			loud = tenant
		}
		if tenant != s.latest.tenant {
			s.other = s.latest
		}
		s.latest = seen{tenant, now}
	}
	if s.StartSlots > 1 || s.Width < 2*fewPart || len(batch) < s.Width/largePart || loud == "" {
		return ""
	}
	for _, who := range []seen{s.latest, s.other} {
		if who.tenant != loud && now.Sub(who.at) < company {
			return loud
		}
	}
	return ""
}

// beside starts a batch that is mostly one tenant's, and what others bring until it is done.
func (s *slot) beside(loud string, batch []webhook.Start) {
	done := make(chan struct{})
	s.workers.Go(func() { // the slot itself is one of them: Stop waits
		defer close(done)
		s.startAll(batch)
	})
	for !s.stopping() { // as in serve
		select {
		case <-done:
			s.queue.Wake() // for what was left there
			return
		case <-s.stopped:
			return
		case <-s.queue.Ready:
			few := s.gatherBut(loud)
			for i := range few {
				s.other = seen{few[i].TenantID, time.Now()}
			}
			s.startAll(few)
		case <-s.gatherings.ready:
			s.startGathered(false)
		}
	}
}

// startAll starts a batch, and gives its places in the queue back.
func (d *Starter) startAll(batch []webhook.Start) {
	d.start(batch)
	for i := range batch {
		d.permits.Release(batch[i].TenantID, 1)
	}
}

// gather takes what is to be started next: from every tenant in turn, and no more of
// those that go alone, which cost the most by far, than can be started at a time. So a
// batch is short whatever a tenant has posted, and there is place in it for the others.
func (s *slot) gather() []webhook.Start {
	return s.gatherFrom(s.queue.Next, s.Width)
}

// gatherBut takes some of what others than the tenant have.
func (s *slot) gatherBut(loud string) []webhook.Start {
	return s.gatherFrom(func() (webhook.Start, bool) { return s.queue.NextBut(loud) }, max(s.Width/fewPart, 1))
}

// gatherFrom leaves what has waited for too long to the relay, and sets aside what is not to be started now.
func (d *Starter) gatherFrom(next func() (webhook.Start, bool), width int) (batch []webhook.Start) {
	now, alone := time.Now(), 0
	for len(batch) < width && alone < ownWidth {
		start, ok := next()
		if !ok {
			return batch
		}
		d.behind.add(&start, -1)
		if d.isLate(&start, now) {
			d.permits.Release(start.TenantID, 1)
			continue
		}
		if d.setAside(start, now) {
			continue
		}
		if d.goesAlone(&start) {
			alone++
		}
		batch = append(batch, start)
	}
	d.queue.Wake() // another slot; and if there is none, this one when it is back
	return batch
}

// isLate says that the relay will start it, or has; or that there is nobody to start it now.
func (d *Starter) isLate(start *webhook.Start, now time.Time) bool {
	return !start.OwnWorkflow && now.Sub(start.ReceivedAt) >= queueTime || d.away.Load()
}
