package dispatch

import (
	"runtime"
	"syscall"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// company is for how long after a tenant's start others take it into account.
	company = time.Second
	// largePart of a workflow's width is a large start. While the CPU is short, none is
	// larger than crowdPart: what is done at once, others wait for.
	largePart, crowdPart = 4, 2
	// shortPart of all CPU time, used by this process alone, is when it is short: PostgreSQL
	// and others often take as much.
	shortPart = 3
	// maxRest bounds the rest after a large start: one that took long was not about CPU.
	maxRest = 100 * time.Millisecond
	// maxPause bounds the rest after any other, as long as somebody's request waits for it;
	// sentPause is the rest when all that waits has been sent ahead.
	maxPause, sentPause = 25 * time.Millisecond, 50 * time.Millisecond
	// For such a rest it is short when this process has used sentPart of it for loadTime: it
	// delays no request.
	sentPart, loadTime = 4, 100 * time.Millisecond
)

// slot is one start slot: it makes one start after another, of all that waits.
type slot struct {
	*Dispatcher

	used          func() time.Duration // CPU time, by this process
	latest, other seen                 // the tenants that started something last
	crowded       time.Time            // when such a start has used up the CPU, last
	load          load
}

// load is whether the CPU was short from one start to another, for a while at least.
type load struct {
	since time.Time
	used  time.Duration // until then
	short bool
}

// measure takes in what has been used until now.
func (l *load) measure(now time.Time, used time.Duration) {
	if in := now.Sub(l.since); in >= loadTime {
		l.short = isShort(in, used-l.used, sentPart)
		l.since, l.used = now, used
	}
}

type seen struct {
	tenant string
	at     time.Time
}

// serve takes all that waits, up to a workflow's width, as one start: at ease that is a
// single delivery, and under load many share.
func (d *Dispatcher) serve() {
	s := slot{Dispatcher: d, used: cpuTime, load: load{since: time.Now(), used: cpuTime()}}
	s.serve()
	d.startSent()
}

// startSent starts, at the end, what was sent ahead. All else stays in the outbox.
func (d *Dispatcher) startSent() {
	var sent []webhook.Start
	for start, ok := d.queue.Next(); ok; start, ok = d.queue.Next() {
		if start.Sent {
			sent = append(sent, start)
		}
	}
	d.start(sent)
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
				s.atEase(batch)
			}
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

// beside starts a batch that is mostly one tenant's, and what others bring until it is
// done. Where the CPU was short it also rests for a while, which leaves them some of what
// such a start and what follows it would use up.
func (s *slot) beside(loud string, batch []webhook.Start) {
	begun, used := time.Now(), s.used()
	done := make(chan struct{})
	s.workers.Go(func() { // the slot itself is one of them: Stop waits
		defer close(done)
		s.startAll(batch)
	})
	rest := time.NewTimer(time.Hour)
	defer rest.Stop()
	for !s.stopping() { // as in serve
		select {
		case <-done:
			done = nil
			if !isShort(time.Since(begun), s.used()-used, shortPart) {
				s.queue.Wake() // for what was left there
				return
			}
			s.crowded = time.Now()
			rest.Reset(min(time.Since(begun), maxRest)) // as long as the start took
		case <-rest.C:
			s.queue.Wake()
			return
		case <-s.stopped:
			return
		case <-s.queue.Ready:
			few := s.gatherBut(loud)
			for i := range few {
				s.other = seen{few[i].TenantID, time.Now()}
			}
			s.startAll(few)
		}
	}
}

// atEase starts a batch. Where the CPU was short, it rests for as long as that took, unless
// there is enough for a full start: what comes meanwhile shares the next one. Without the
// rest a slot that is quick shares little, and what it starts uses up the CPU. As long as no
// request waits for it, since all were sent ahead, it rests longer. Several slots do not rest.
func (s *slot) atEase(batch []webhook.Start) {
	begun, used := time.Now(), s.used()
	s.load.measure(begun, used)
	s.startAll(batch)
	took := time.Since(begun)
	if s.StartSlots > 1 || !isShort(took, s.used()-used, shortPart) {
		return
	}
	defer s.queue.Wake() // for what has come
	for done := time.Now(); s.queue.Len() < s.width(); {
		rest := min(took, maxPause)
		if s.load.short && s.behind.len() == 0 {
			rest = sentPause
		}
		over := time.NewTimer(rest - time.Since(done))
		select {
		case <-over.C:
			return
		case <-s.stopped:
			over.Stop()
			return
		case <-s.queue.Ready: // one more
			over.Stop()
		}
	}
}

// isShort says whether the CPU is: this process has used more than a part of it in a time.
func isShort(in, used time.Duration, part int) bool {
	return used > in*time.Duration(runtime.GOMAXPROCS(0))/time.Duration(part)
}

// cpuTime is what this process has used of it.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// startAll starts a batch, and gives its places in the queue back.
func (d *Dispatcher) startAll(batch []webhook.Start) {
	d.start(batch)
	for i := range batch {
		d.room.give(batch[i].TenantID, 1)
	}
}

// gather takes what is to be started next: from every tenant in turn, and no more of
// those that go alone, which cost the most by far, than can be started at a time. So a
// batch is short whatever a tenant has posted, and there is place in it for the others.
func (s *slot) gather() []webhook.Start {
	return s.gatherFrom(s.queue.Next, s.width())
}

// width is how many are started at a time.
func (s *slot) width() int {
	if time.Since(s.crowded) < company {
		return max(s.Width/crowdPart, 1)
	}
	return s.Width
}

// gatherBut takes some of what others than the tenant have.
func (s *slot) gatherBut(loud string) []webhook.Start {
	return s.gatherFrom(func() (webhook.Start, bool) { return s.queue.NextBut(loud) }, max(s.Width/fewPart, 1))
}

// gatherFrom leaves what has waited for too long to the relay, and sets aside what is not to be started now.
func (d *Dispatcher) gatherFrom(next func() (webhook.Start, bool), width int) (batch []webhook.Start) {
	now, alone := time.Now(), 0
	for len(batch) < width && alone < ownWidth {
		start, ok := next()
		if !ok {
			return batch
		}
		d.behind.add(&start, -1)
		if d.isLate(&start, now) {
			d.room.give(start.TenantID, 1)
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

// isLate says that the relay will start it, or has; or, of what was sent ahead, that there is
// nobody to start it now: that is in the record by then, and no longer in the outbox, and who
// has sent it starts its workflow.
func (d *Dispatcher) isLate(start *webhook.Start, now time.Time) bool {
	return !start.Sent && now.Sub(start.Begun) >= queueTime || d.away.Load()
}
