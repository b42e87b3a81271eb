package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
)

// class is a kind of fault.
type class struct {
	name       string
	shapes     []string // where it can be injected
	duplicates cause    // what may be sent twice
	inject     injection
}

// allowed is what may be sent twice on a shape. A process that cannot record an outcome does not send again, but another one may, which
// does not know of the request.
func (c class) allowed(s shape) cause {
	if c.duplicates == never && s.senders() > 1 && strings.Contains(c.name, "postgres") {
		return underWay
	}
	return c.duplicates
}

const (
	long = 9 * time.Second // longer than a claim lives

	veryLong       = 16 * time.Second       // longer than Temporal waits for a worker, 12 s
	besideFor      = 2 * time.Second        // how long two releases work side by side, at least
	besideEvents   = 4                      // posted meanwhile
	besideAtMost   = 10                     // times as long, until the process has lanes
	claimedTimeout = 20 * time.Second       // a claim on such a request lives longer than that
	claimedAfter   = 300 * time.Millisecond // until a changed timeout is known
	waitingHeld    = 3 * maxInFlight        // deliveries to the endpoint with a cap
	hangTime       = 4 * time.Second        // until deliveries are held because too many wait
	backlog        = 40 * maxInFlight       // deliveries that then wait
	releaseTime    = 20 * time.Second       // until some of them are held, or released again, or dead letters are replayed
	largeBody      = 100 << 10              // bytes, of which some are sent before all are written
	temporalGone   = 150 * time.Second      // longer than any pause of its clients, and than workers poll a namespace that is gone
	heldTime       = 8 * time.Second        // longer than lanes need to change their owner, and deferred deliveries to ask it
)

// The groups of shapes.
var (
	alone   = []string{"standalone"}
	apart   = []string{"split", "fleet"}          // APIs and workers are processes of their own
	several = []string{"split", "fleet", "serve"} // so are PostgreSQL and Temporal
	every   = []string{"standalone", "split", "fleet", "serve"}
)

// classes is the table of all classes.
func classes() []class {
	return slices.Concat([]class{
		{"none", every, never, nothing},

		{"kill-everpost", alone, underWay, kill("everpost")},
		{"kill-api", apart, never, kill("api-1")},
		{"kill-worker", apart, unrecorded, kill("worker-1")},
		{"kill-api-and-worker", apart, unrecorded, kill("api-1", "worker-1")},
		{"kill-two-workers", []string{"fleet"}, unrecorded, kill("worker-1", "worker-2")},
		{"kill-serve", []string{"serve"}, unrecorded, kill("serve-1")},
		{"kill-temporal", several, never, kill("temporal")},
		{"kill-all", every, underWay, killAll},
		{"kill-all-but-postgres", several, underWay, killAllButPostgres},
		{"kill-everpost-again", alone, underWay, killAgain("everpost")},
		{"kill-api-again", apart, never, killAgain("api-1")},
		{"kill-worker-again", apart, underWay, killAgain("worker-1")},
		{"kill-serve-again", []string{"serve"}, underWay, killAgain("serve-1")},

		{"term-everpost", alone, never, terminate("everpost")},
		{"term-api", apart, never, terminate("api-1")},
		{"term-worker", apart, never, terminate("worker-1")},
		{"term-serve", []string{"serve"}, never, terminate("serve-1")},
		{"term-worker-held", []string{"fleet"}, never, terminateHeld("worker-1")},
		{"term-serve-held", []string{"serve"}, never, terminateHeld("serve-1")},
		{"term-temporal", several, never, terminate("temporal")},

		{"stop-everpost", alone, never, stopFor("everpost")},
		{"stop-api", apart, never, stopFor("api-1")},
		{"stop-worker", apart, never, stopFor("worker-1")},
		{"stop-worker-long", apart, underWay, stop(long, "worker-1")},
		{"stop-worker-claimed", []string{"fleet"}, underWay, stopClaimed},
		{"stop-worker-held", []string{"fleet"}, underWay, stopHeld("worker-1")},
		{"stop-serve-long", []string{"serve"}, underWay, stop(long, "serve-1")},
		{"stop-serve-held", []string{"serve"}, underWay, stopHeld("serve-1")},
		{"stop-temporal", several, never, stopFor("temporal")},
		{"stop-everpost-minute", alone, underWay, stop(time.Minute, "everpost")},
		{"stop-api-minute", apart, never, stop(time.Minute, "api-1")},
		{"stop-worker-minute", apart, underWay, stop(time.Minute, "worker-1")},
		{"stop-serve-minute", []string{"serve"}, underWay, stop(time.Minute, "serve-1")},
		{"stop-temporal-minute", several, never, stop(time.Minute, "temporal")},
		{"stop-postgres", every, never, stopPostgres},
		{"stop-all", every, never, stopAll},
		{"in-turn", every, underWay, inTurn},

		{"previous-api", apart, never, runPrevious("api-1")},
		{"previous-worker", apart, never, runPrevious("worker-1")},
		{"previous-serve", []string{"serve"}, never, runPrevious("serve-1")},

		{"clock-everpost", alone, never, wrongClock("everpost")},
		{"clock-api", apart, never, wrongClock("api-1")},
		{"clock-worker", apart, never, wrongClock("worker-1")},
		{"clock-serve", []string{"serve"}, never, wrongClock("serve-1")},
		{clockPostgres, several, underWay, stepClock},

		{"memory-everpost", alone, underWay, noMemory("everpost")},
		{"memory-api", apart, never, noMemory("api-1")},
		{"memory-worker", apart, underWay, noMemory("worker-1")},
		{"memory-serve", []string{"serve"}, underWay, noMemory("serve-1")},
		{"files-everpost", alone, never, noFiles("everpost")},
		{"files-api", apart, never, noFiles("api-1")},
		{"files-worker", apart, never, noFiles("worker-1")},
		{"files-serve", []string{"serve"}, never, noFiles("serve-1")},
		{"files-temporal", several, never, noFiles("temporal")},
		{"files-postgres", every, never, limitPostgres("nofile", openFiles)},
		{"memory-postgres", every, never, limitPostgres("as", usedMemory)},
		{"processes-postgres", every, never, limitPostgres("nproc", oneProcess)},

		{"temporal-store-fails", several, never, failStore},
		{"temporal-namespace-gone", several, never, loseNamespace},
		{"temporal-away", several, never, awayFor(temporalGone)},
		{"at-release-after", every, underWay, atHold(releaseAfter)},
		{"at-hold-before", every, underWay, atHold(holdBefore)},
		{"at-hold-after", every, underWay, atHold(holdAfter)},
		{"at-send-mid-body", every, underWay, atLargeBody},
		{"at-continue-as-new", every, underWay, atReplay},
		{"signals-lost", apart, never, loseSignals},
		{"commands-waiting", every, never, commandWaiting},

		{"postgres-kill", every, never, signalPostgres(syscall.SIGKILL)},
		{"postgres-kill-session", every, never, killSession},
		{"postgres-restart-fast", every, never, signalPostgres(syscall.SIGINT)},
		{"postgres-restart-immediate", every, never, signalPostgres(syscall.SIGQUIT)},
		{"postgres-terminate-sessions", every, never, terminateSessions},
		{"postgres-connections-exhausted", every, never, exhaustConnections},
		{"postgres-lock-deliveries", every, never, lockTable("deliveries")},
		{"postgres-lock-outbox", every, never, lockTable("outbox")},
		{"postgres-read-only", every, never, readOnly},
		{"postgres-standby", every, never, becomeStandby},
		{"postgres-disk-full", every, never, limitPostgres("fsize", mostWritten)},
		{"postgres-disk-slow", every, never, slowDisk},
		{powerCut, several, underWay, cutPower},
		{pooled + "api", apart, never, behindPooler("api-1")},
		{pooled + "worker", apart, never, behindPooler("worker-1")},
		{pooled + "serve", []string{"serve"}, never, behindPooler("serve-1")},

		{"kill-rewrap-before", several, never, killRewrap(rewrapBefore)},
		{"kill-rewrap-after", several, never, killRewrap(rewrapAfter)},
		{"kill-migrate", several, never, killMigrate},
		{"kill-retention-before", every, underWay, killRetention(retentionBefore)},
		{"kill-retention-after", every, underWay, killRetention(retentionAfter)},

		{"receivers-hang", every, never, holdReceivers},
		{"receivers-restart", every, never, restartReceivers},
		{"receivers-reset", every, never, onReceivers(reset())},
		{"receivers-close-mid-answer", every, never, onReceivers(toxic{"limit_data", "downstream", map[string]any{"bytes": 20}})},
		{"receivers-latency", every, never, onReceivers(latency(300 * time.Millisecond))},
		{"receivers-stall-requests", every, never, onReceivers(stall("upstream"))},
		{"receivers-stall-answers", every, never, onReceivers(stall("downstream"))},
	}, networks(), failpoints())
}

// lacks is what a class needs and is not there; "" if it can be run. previous is the commit of the previous release.
func (c class) lacks(previous string) string {
	switch {
	case strings.HasPrefix(c.name, "previous-") && previous == "":
		return "-previous"
	case strings.HasPrefix(c.name, pooled) && pgBouncer() == "":
		return "pgbouncer (apt-get install pgbouncer)"
	case c.name == clockPostgres && faketime() == "":
		return "libfaketime (apt-get install libfaketime)"
	}
	return ""
}

// shortAndPlain reports whether a class can be one of several in a run: it is over soon, and needs no other load.
func (c class) shortAndPlain() bool {
	for _, prefix := range []string{
		"none", "in-turn", "at-", "previous-", "term-worker-held", "term-serve-held", "stop-everpost-", "stop-api-", "stop-worker-", "stop-serve-",
		"stop-temporal-", "signals-lost", "commands-waiting", "kill-rewrap", "kill-migrate", "kill-retention", powerCut, clockPostgres,
		"temporal-away", "temporal-namespace-gone", pooled, lanesUnreachable,
	} {
		if strings.HasPrefix(c.name, prefix) {
			return false
		}
	}
	return true
}

// networks are the classes of bad links between the parts.
func networks() []class {
	var all []class
	for _, link := range []struct {
		name   string
		shapes []string
	}{
		{"client>", every},
		{"api>postgres", apart}, {"worker>postgres", apart}, {"serve>postgres", []string{"serve"}}, {"temporal>postgres", several},
		{"api>temporal", apart}, {"worker>temporal", apart}, {"serve>temporal", []string{"serve"}},
	} {
		name := strings.ReplaceAll(strings.Replace(link.name, "client>", "client>api", 1), ">", "-to-")
		all = append(all,
			class{name + "-latency", link.shapes, never, onLinks(link.name, latency(100*time.Millisecond))},
			class{name + "-cut", link.shapes, never, cutLinks(link.name)},
			class{name + "-stall-requests", link.shapes, never, onLinks(link.name, stall("upstream"))},
			class{name + "-stall-answers", link.shapes, never, onLinks(link.name, stall("downstream"))},
		)
	}
	return append(all, lanes()...)
}

// lanes are the classes of bad links to the processes that own lanes, from each other and from the APIs. No request in flight may be
// repeated: the processes that send go on, and reach PostgreSQL and Temporal.
func lanes() []class {
	return []class{
		{"lanes-latency", several, never, onLinks("lanes>", latency(100*time.Millisecond))},
		{"lanes-cut", several, never, onLinks("lanes>", reset())}, // each connection is accepted, and closed instead of its first answer
		{"lanes-refuse", several, never, cutLinks("lanes>")},      // as if the processes had ended, which renew their leases
		{"lanes-stall-requests", several, never, onLinks("lanes>", stall("upstream"))},
		{"lanes-stall-answers", several, never, onLinks("lanes>", stall("downstream"))},
		{lanesUnreachable, several, never, cutLanes},
	}
}

// failpoints are the classes of a kill -9 at a point that is compiled in.
func failpoints() []class {
	var all []class
	for _, point := range points() {
		all = append(all, class{"at-" + point.name, every, underWay, atFailpoint(point.name)})
	}
	return all
}

// The failpoints that have classes of their own, because they need another load or are in a command.
const (
	releaseAfter    = "release-after"
	holdBefore      = "hold-before"
	holdAfter       = "hold-after"
	sendMidBody     = "send-mid-body"
	continueAsNew   = "continue-as-new"
	rewrapBefore    = "rewrap-before"
	rewrapAfter     = "rewrap-after"
	retentionBefore = "retention-before"
	retentionAfter  = "retention-after"
)

// point is a failpoint of the product.
type point struct{ name string }

func points() []point {
	return []point{
		{"event-before-commit"}, {"event-after-commit"}, {"start-before"}, {"start-after"}, {"send-before"}, {"send-after"},
		{"record-before"}, {"record-after"}, {"attempt-result"}, {"claim-after"}, {"command-after-commit"}, {"steps-before"},
		{"steps-after"}, {"keep-before"}, {"keep-after"},
		{"replay-page-before"}, {"replay-page-after"},
	}
}

// selected are the classes with these names; a name may end in * and "all" is every class.
func selected(names string) ([]class, error) {
	if names == "all" {
		return classes(), nil
	}
	var all []class
	for name := range strings.SplitSeq(names, ",") {
		prefix, wild := strings.CutSuffix(name, "*")
		n := len(all)
		for _, c := range classes() {
			if c.name == name || wild && strings.HasPrefix(c.name, prefix) {
				all = append(all, c)
			}
		}
		if len(all) == n {
			return nil, fmt.Errorf("there is no class %q", name)
		}
	}
	return all, nil
}
