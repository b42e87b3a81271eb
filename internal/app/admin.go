package app

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/pprof"

	"github.com/everpost/everpost/internal/hosts"
)

// admin is what a process answers on its admin listener, from before it has started.
type admin struct{ *App }

// handler serves health checks, metrics, profiles and settings, without authentication. So it
// checks the Host header, and refuses cross-site requests for profiles and settings: a web page in an
// operator's browser must not read them. Where others than this machine reach the listener, profiles
// and settings need an operator's key: profiles cost CPU and show what is in memory.
func (a admin) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, health{Status: "ok"}) })
	mux.HandleFunc("GET /readyz", a.ready)
	mux.Handle("GET /metrics", a.metrics.Handler())
	// Without /debug/pprof/cmdline: flags may contain secrets.
	debug := http.NewServeMux()
	debug.HandleFunc("GET /debug/pprof/", pprof.Index)
	debug.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	debug.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	debug.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	debug.HandleFunc("GET "+settingsPath, a.settings)
	mux.Handle("/debug/", hosts.SameSite(a.forOperators(debug)))
	if a.codec != nil && a.options.API {
		mux.Handle(codecPath, a.codecHandler())
	}
	return hosts.Check(mux, hosts.Allowed(a.options.Config.AdminHosts), "EVERPOST_ADMIN_HOSTS")
}

// forOperators serves a handler to this machine if the admin listener is only reached from there, and otherwise to operators. A
// process without an API cannot check keys, and then serves nobody.
func (a admin) forOperators(next http.Handler) http.Handler {
	if at, ok := a.adminListen.Addr().(*net.TCPAddr); ok && at.IP.IsLoopback() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !a.options.API:
			http.Error(w, "Profiles and settings of a process without an API are only for its own machine: let EVERPOST_ADMIN_LISTEN be a loopback address.",
				http.StatusForbidden)
		case a.isOperator(w, r):
			next.ServeHTTP(w, r)
		}
	})
}

// health is the answer of /healthz and /readyz.
type health struct {
	Status     string `json:"status"` // ok, degraded, unavailable, starting or stopping
	PostgreSQL string `json:"postgresql,omitempty"`
	Temporal   string `json:"temporal,omitempty"`
	Worker     string `json:"worker,omitempty"`
	KeyService string `json:"key_service,omitempty"` // only with a key management service
}

// ready answers 200 if the process can do its work. An API needs PostgreSQL, and is degraded
// without Temporal, because events are still accepted. A worker needs both. Without its key
// management service either is degraded: endpoints in the cache still get requests. The answer
// is 503 until Start has finished, and from the beginning of Stop.
func (a admin) ready(w http.ResponseWriter, r *http.Request) {
	h := health{Status: "ok", PostgreSQL: "ok", Temporal: "ok"}
	status := http.StatusOK
	select {
	case <-a.started:
	default:
		answer(w, http.StatusServiceUnavailable, health{Status: "starting"})
		return
	}
	if a.stopping.Load() {
		answer(w, http.StatusServiceUnavailable, health{Status: "stopping"})
		return
	}
	if a.options.Worker {
		h.Worker = "ok"
		if !a.working.Load() {
			h.Worker = "not running"
		}
	}
	if h.KeyService = a.keyService.state(); h.KeyService != "" && h.KeyService != "ok" {
		h.Status = "degraded"
	}
	if !a.engine.Health.Up() || h.Worker != "" && h.Worker != "ok" {
		h.Status = "degraded"
		if !a.engine.Health.Up() {
			h.Temporal = "does not answer"
		}
		if !a.options.API {
			h.Status, status = "unavailable", http.StatusServiceUnavailable
		}
	}
	if err := a.store.Ready(r.Context()); err != nil {
		h.Status, h.PostgreSQL, status = "unavailable", "does not answer", http.StatusServiceUnavailable
	}
	answer(w, status, h)
}

func answer(w http.ResponseWriter, status int, h health) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(h) //nolint:errchkjson // strings always encode; if the client has gone there is nothing to do
}

// registerGauges adds the metrics that are read at each scrape.
func (a admin) registerGauges() {
	a.metrics.Gauge("everpost_starts_waiting", "Deliveries that wait in this process for the start of their workflow.",
		func() float64 { return float64(a.waitingStarts()) })
	a.metrics.Gauge("everpost_temporal_up", "1 when Temporal answered when it was last asked.", func() float64 { return truth(a.engine.Health.Up()) })
	if a.overAll {
		for _, group := range storeGauges(a.life, countingStores{a.store.Outbox, a.store.Releases, a.store.Deliveries, a.store.Replays}) {
			a.metrics.Register(group)
		}
	}
	if a.admission != nil {
		a.metrics.Register(admissionGauges(a.admission))
		a.metrics.Gauge("everpost_worker_running", "1 while the Temporal worker of this process runs.", func() float64 { return truth(a.working.Load()) })
		a.metrics.Gauge("everpost_attempts_running", "Attempts that this process is making, from the first check to the recording of the outcome.",
			func() float64 { return float64(a.runningAttempts()) })
	}
	a.metrics.Gauge("everpost_clock_offset_seconds", "How far this process's clock is ahead of PostgreSQL's, which counts.",
		func() float64 { return a.store.ClockOffset().Seconds() })
	a.metrics.Gauge("everpost_postgres_connections_used", "Connections to PostgreSQL in use.", func() float64 { return float64(a.store.ConnectionsUsed()) })
}

// waitingStarts is 0 until there is an intake: the admin listener is open before.
func (a admin) waitingStarts() int {
	select {
	case <-a.started:
		return a.intake.Waiting()
	default:
		return 0
	}
}

// runningAttempts is 0 until there are activities: the admin listener is open before.
func (a admin) runningAttempts() int {
	select {
	case <-a.started:
		return a.activities.Attempts.Running()
	default:
		return 0
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
