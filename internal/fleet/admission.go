package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/cache"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// ownerPatience is how long Acquire waits for an owner that answers.
	ownerPatience = time.Second
	// ownerDeferral is for how long a delivery is deferred if there is none, and ownerSpread is added at random.
	ownerDeferral, ownerSpread = 1200 * time.Millisecond, time.Second
	// silentDeferral is for how long one is deferred, at most, because a process does not say what it has under way: it may answer
	// any time, or end.
	silentDeferral = 5 * time.Second
	// healthPatience is how long Health waits for an owner, and silentPatience for one that has not answered lately. An owner answers within
	// milliseconds, unless its machine is busy or it has stopped.
	healthPatience, silentPatience = time.Second, 100 * time.Millisecond
	// forecastTime is for how long the forecast of an owner is used.
	forecastTime = 5 * time.Second
)

// errNoOwner says that no process admits the requests to an endpoint now.
var errNoOwner = errors.New("no process owns the endpoint's lane now")

// forecast is what the owner said of an endpoint last.
type forecast struct {
	Forecast

	at time.Time
}

// Forecast is what an owner says of an endpoint.
type Forecast struct {
	Wait      time.Duration // see admission.Forecast, as Unhealthy
	Unhealthy bool
	Slow      bool // see admission.Controller.LikelySlow
}

// Acquire is that of admission.Controller. While no owner answers, the delivery is deferred.
func (f *Fleet) Acquire(ctx context.Context, r admission.Request) admission.Decision {
	waiting, cancel := context.WithTimeout(ctx, ownerPatience)
	defer cancel()
	for {
		if decision, ok := f.ask(ctx, r); ok {
			return decision
		}
		if !pause(waiting, retryPause) {
			return deferral(spread(0), webhook.ReasonNoOwner)
		}
	}
}

// TryAcquire is that of admission.Controller, for the endpoints of this process's lanes. Nil for others.
func (f *Fleet) TryAcquire(r admission.Request) *admission.Permit {
	decision, _ := f.acquireOwn(f.life, r, true)
	return decision.Permit
}

// Forget is that of admission.Controller.
func (f *Fleet) Forget(endpoint webhook.EndpointID, delivery webhook.DeliveryID) {
	p, own := f.owner(endpoint)
	switch {
	case own:
		f.controller.Forget(endpoint, delivery)
	case p != nil: // if that fails, the reservation lapses
		f.work.Go(func() { _ = p.call(f.life, methodForget, &ForgetArgs{endpoint, delivery}, new(struct{})) })
	}
}

// LikelySlow is that of admission.Controller, as far as this process knows.
func (f *Fleet) LikelySlow(id webhook.EndpointID) bool {
	if _, own := f.owner(id); own {
		return f.controller.LikelySlow(id)
	}
	return f.forecasts.of(id).Slow
}

// Near is that of admission.Controller, as far as this process knows.
func (f *Fleet) Near(r admission.Request) (timeout time.Duration, near bool) {
	if _, own := f.owner(r.Endpoint); own {
		return f.controller.Near(r)
	}
	return r.Limits.LongestTimeout(), !f.forecasts.of(r.Endpoint).Slow
}

// Forecast is that of admission.Controller, as far as this process knows.
func (f *Fleet) Forecast(id webhook.EndpointID) admission.Forecast {
	if _, own := f.owner(id); own {
		return f.controller.Forecast(id)
	}
	known := f.forecasts.of(id)
	return admission.Forecast{Wait: known.Wait, Unhealthy: known.Unhealthy}
}

// Admits reports whether this process admits the requests to an endpoint.
func (f *Fleet) Admits(id webhook.EndpointID) bool {
	_, own := f.owner(id)
	return own
}

// OwnLanes are the lanes that this process owns.
func (f *Fleet) OwnLanes() (lanes []int) {
	for lane := range webhook.Lanes {
		if _, _, own := f.ownLane(webhook.EndpointID{15: byte(lane)}); own {
			lanes = append(lanes, lane)
		}
	}
	return lanes
}

// UsualRate is that of admission.Controller, as far as this process knows.
func (f *Fleet) UsualRate(id webhook.EndpointID) float64 { return f.controller.UsualRate(id) }

// Releasable is that of admission.Controller; 0 for the endpoints of other processes' lanes, which release their deliveries.
func (f *Fleet) Releasable(id webhook.EndpointID) int {
	if _, own := f.owner(id); own {
		return f.controller.Releasable(id)
	}
	return 0
}

// Health is what the owner of an endpoint's lane observes of the endpoint, if that is another process. An error means that there is no
// owner now, or that it did not answer in time.
func (f *Fleet) Health(ctx context.Context, id webhook.EndpointID) (observed webhook.Observation, elsewhere bool, err error) {
	p, own := f.owner(id)
	switch {
	case own, p == nil && f.Processes() == 0: // or each process counts for itself
		return observed, false, nil
	case p == nil:
		return observed, true, errNoOwner
	}
	observed, err = p.askHealth(ctx, id)
	return observed, true, err
}

// askHealth is Health for a process that owns the endpoint's lane.
func (p *peer) askHealth(ctx context.Context, id webhook.EndpointID) (observed webhook.Observation, err error) {
	patience := silentPatience
	if p.hasAnswered() {
		patience = healthPatience
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reply := &HealthReply{}
	if err := p.call(ctx, methodHealth, &HealthArgs{id}, reply); err != nil { // reply may still be written to
		return observed, err
	}
	if reply.NotOwner {
		return observed, errNoOwner
	}
	return reply.Observed, nil
}

// ask asks the owner of an endpoint's lane. False: there is no owner that answers, or it is about to change.
func (f *Fleet) ask(ctx context.Context, r admission.Request) (admission.Decision, bool) {
	p, own := f.owner(r.Endpoint)
	switch {
	case own:
		return f.acquireOwn(ctx, r, false)
	case p != nil:
		return f.askPeer(ctx, p, r)
	}
	return admission.Decision{}, false
}

// decide asks this process's controller. False: this process does not own the endpoint's lane, or has lost it meanwhile.
func (f *Fleet) decide(ctx context.Context, r admission.Request, try bool) (decision admission.Decision, epoch int64, ok bool) {
	since, epoch, ok := f.ownLane(r.Endpoint)
	if !ok {
		return decision, 0, false
	}
	if wait := f.blockedFor(r.Endpoint, r.Limits.LongestTimeout()); wait > 0 {
		return deferral(spread(min(wait, silentDeferral)), webhook.ReasonInFlight), epoch, true
	}
	r.Since = since
	if try {
		decision.Permit = f.controller.TryAcquire(r)
	} else {
		decision = f.controller.Acquire(ctx, r)
	}
	if decision.Permit == nil {
		_, now, still := f.ownLane(r.Endpoint)
		ok = still && now == epoch
	}
	return decision, epoch, ok
}

// acquireOwn asks this process's controller for a permit of this process.
func (f *Fleet) acquireOwn(ctx context.Context, r admission.Request, try bool) (admission.Decision, bool) {
	r.Host, r.URL = f.controller.HostOf(r.URL), ""
	decision, epoch, ok := f.decide(ctx, r, try)
	own := decision.Permit
	if !ok || own == nil {
		return decision, ok
	}
	decision.Permit = permits{f}.obtain(f.lastID.Add(1), obtainedPermit{r, epoch, time.Now(), own.Timeout(), own}) //nolint:contextcheck // it outlives ctx
	if decision.Permit == nil {
		own.Cancel()
		return admission.Decision{}, false
	}
	return decision, true
}

// askPeer asks another process.
func (f *Fleet) askPeer(ctx context.Context, p *peer, r admission.Request) (admission.Decision, bool) {
	number, asked := f.lastID.Add(1), time.Now()
	f.PermitsAsked.Add(1)
	r.Host, r.URL = f.controller.HostOf(r.URL), ""
	reply := &AcquireReply{}
	abandoned := func() { //nolint:contextcheck // it may still give a permit
		permits{f}.reportEnd(r.Endpoint, number, webhook.MaxTimeout, nil)
	}
	if err := p.call(ctx, methodAcquire, &AcquireArgs{number, r}, reply, abandoned); err != nil {
		if ctx.Err() != nil {
			return deferral(ownerDeferral, webhook.ReasonInFlight), true
		}
		return admission.Decision{}, false
	}
	if reply.NotOwner {
		return admission.Decision{}, false
	}
	f.forecasts.put(r.Endpoint, reply.Forecast)
	if !reply.Permitted {
		if reply.Wait == 0 {
			return admission.Decision{Reason: reply.Reason}, true
		}
		return deferral(reply.Wait, reply.Reason), true
	}
	permit := permits{f}.obtain(number, obtainedPermit{r, reply.Epoch, asked, reply.Timeout, nil}) //nolint:contextcheck // see above
	if permit == nil {                                                                             // the owner of now does not know of it
		return admission.Decision{}, false
	}
	return admission.Decision{Permit: permit}, true
}

// spread is a wait that is worth a durable timer, with something at random: not all come at once.
func spread(wait time.Duration) time.Duration {
	return max(wait, ownerDeferral) + rand.N(ownerSpread)
}

func deferral(wait time.Duration, reason string) admission.Decision {
	return admission.Decision{Wait: wait, Until: time.Now().Add(wait), Reason: reason}
}

// forecasts are what the owners of other lanes said of endpoints last.
type forecasts struct {
	mu  sync.Mutex
	all *cache.Map[webhook.EndpointID, forecast]
}

func newForecasts() *forecasts {
	return &forecasts{all: cache.NewMap[webhook.EndpointID, forecast](knownForecasts)}
}

func (f *forecasts) put(id webhook.EndpointID, known Forecast) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all.Put(id, forecast{known, now}, now)
}

// of is what is known of an endpoint in another process's lane; zero for nothing.
func (f *forecasts) of(id webhook.EndpointID) Forecast {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	known, ok := f.all.Get(id, now)
	if !ok || now.Sub(known.at) > forecastTime {
		return Forecast{}
	}
	return known.Forecast
}
