package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	restPatience = 90 * time.Second      // for all to be at rest after a fault: beyond every wait of the product but the reconciler's
	restTick     = 50 * time.Millisecond // between two looks at whether all is at rest
)

// run is one seed of one class.
type run struct {
	class class
	seed  uint64
	in    *installation
}

// do runs the load with the fault, waits until all is at rest, and checks. An error means that the run could not be made.
func (r run) do(ctx context.Context) (result, error) {
	begun := time.Now()
	p, l := newPlan(r.seed), newLedger()
	receivers, err := startReceivers(p, l)
	if err != nil {
		return result{}, err
	}
	defer receivers.stop()
	r.in.tenants++
	l.numbers = !strings.HasPrefix(r.class.name, "previous-") // an older release may not know it
	work := &load{plan: p, tenant: r.tenant(), apis: r.in.apis, receivers: receivers, ledger: l}
	if err := work.prepare(ctx); err != nil {
		return result{}, err
	}
	if r.class.name == powerCut {
		if err := r.in.backup(ctx); err != nil {
			return result{}, err
		}
	}
	w := &window{duplicates: r.class.allowed(r.in.shape), known: r.in.shape.spread()}
	loaded := make(chan error, 1)
	following, stopFollowing := context.WithCancel(ctx)
	seen, followed := newHistory(), make(chan struct{})
	go func() {
		defer close(followed)
		seen.follow(following, r.in, work.tenant)
	}()
	defer func() {
		stopFollowing()
		<-followed
	}()
	loading, stopLoad := context.WithTimeout(ctx, restPatience)
	defer stopLoad()
	started := time.Now()
	go func() {
		work.run(loading)
		loaded <- loading.Err()
	}()
	if err := pause(ctx, p.faultAt); err != nil {
		return result{}, err
	}
	w.start = time.Now()
	injected := r.class.inject(ctx, &scene{r.in, receivers, work, work.tenant, w})
	w.end = time.Now()
	notLoaded := <-loaded
	if injected != nil {
		return result{}, fmt.Errorf("inject %s: %w", r.class.name, injected)
	}
	if notLoaded != nil {
		l.problemf("events were not acknowledged within %s", time.Since(started).Round(time.Second))
	}
	stored, err := r.settle(ctx, work)
	if err != nil {
		return result{}, err
	}
	stopFollowing()
	<-followed
	stored.strange = seen.strange
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = receivers.all[capped].Most()
	found := resultOf(r, check(l, stored, *w, r.mostAtATime()), *w)
	found.latest = latestAttempt(l, stored, later(w.end, w.ready))
	found.Recovery = seconds(found.latest.late)
	found.firsts = firstAttempts(l, stored)
	found.Seconds = seconds(time.Since(begun))
	return found, nil
}

// tenant is the run's own.
func (r run) tenant() string { return fmt.Sprintf("seed-%d-%d", r.seed, r.in.tenants) }

// mostAtATime is how many requests the capped endpoint may get at a time. Those of a process that has died, or that has given up on a bad
// link, may still be there.
func (r run) mostAtATime() int {
	if r.class.allowed(r.in.shape) != never || strings.HasPrefix(r.class.name, "receivers-") {
		return 2 * maxInFlight
	}
	return maxInFlight
}

// settle waits until all of the tenant is at rest, and reads the database, with what should have gone and has not.
func (r run) settle(ctx context.Context, work *load) (*record, error) {
	patient, cancel := context.WithTimeout(ctx, restPatience)
	defer cancel()
	if err := work.settle(patient); err != nil {
		work.ledger.problemf("%v", err)
	}
	var left []string
	watch := &watch{in: r.in}
	defer watch.close()
	for missing := "the database"; ; {
		now, err := watch.atRest(patient, work.tenant)
		if err == nil && now == "" {
			break
		}
		if err == nil {
			missing = now
		}
		if patient.Err() != nil {
			left = append(left, "after "+restPatience.String()+": "+missing)
			break
		}
		_ = pause(patient, restTick)
	}
	stored, err := r.read(ctx, work.tenant, left)
	for err != nil && pause(patient, restTick) == nil { // a session may end late because of the fault
		stored, err = r.read(ctx, work.tenant, left)
	}
	return stored, err
}

// read reads the database, and what is left besides what is known already.
func (r run) read(ctx context.Context, tenant string, left []string) (*record, error) {
	conn, err := r.in.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	if len(left) == 0 {
		left = append(r.leftBehind(ctx, conn), r.in.temporaryFiles()...)
		if conn.IsClosed() {
			return nil, errors.New("the connection to the database has ended")
		}
	}
	for _, p := range r.in.parts {
		if !p.process.Running() {
			left = append(left, p.name+" has ended by itself")
		}
	}
	stored, err := readRecord(ctx, conn, tenant)
	if err != nil {
		return nil, err
	}
	stored.left = left
	return stored, nil
}

// watch looks at the database until all is at rest.
type watch struct {
	in   *installation
	conn *pgx.Conn // nil before the first look, and after one that failed
}

func (w *watch) atRest(ctx context.Context, tenant string) (missing string, err error) {
	if w.conn == nil {
		if w.conn, err = w.in.dial(ctx); err != nil {
			return "", err
		}
	}
	if missing, err = atRest(ctx, w.conn, tenant); err != nil {
		w.close()
	}
	return missing, err
}

func (w *watch) close() {
	if w.conn != nil {
		_ = w.conn.Close(context.Background())
		w.conn = nil
	}
}

// repeat is the command that repeats a run.
func (r run) repeat() string {
	return fmt.Sprintf("make faults FAULTS_FLAGS='-classes %s -shapes %s -seed %d'", r.class.name, r.in.shape.name, r.seed)
}

// report describes a failed run for people.
func (r run) report(found result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "FAILED: class %s, shape %s, seed %d: lost %d, unexpected %d\n", r.class.name, r.in.shape.name, r.seed, found.Lost, found.Unexpected)
	for _, text := range found.findings {
		b.WriteString("  " + text + "\n")
	}
	return b.String() + "repeat it: " + r.repeat() + "\n"
}
