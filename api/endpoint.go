package api

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// endpointView is the API's view of an endpoint; Secret is set only when it is created.
type endpointView struct {
	ID              webhook.EndpointID    `json:"id"`
	TenantID        string                `json:"tenant_id"`
	URL             string                `json:"url"`
	EventTypes      []string              `json:"event_types"`
	State           webhook.EndpointState `json:"state"`
	StateReason     *string               `json:"state_reason"`
	Secret          string                `json:"secret,omitempty"`
	SecretRead      string                `json:"secret_read,omitempty"` // of a caller's own
	SecretWarning   string                `json:"secret_warning,omitempty"`
	Signature       string                `json:"signature"`
	PublicKey       *string               `json:"public_key"`
	PayloadFormat   webhook.PayloadFormat `json:"payload_format"`
	TraceContext    bool                  `json:"trace_context"`
	Timeout         string                `json:"timeout"`
	MaxInFlight     int                   `json:"max_in_flight"`
	RateLimit       float64               `json:"rate_limit_per_second"`
	RetryPolicy     retry.Policy          `json:"retry_policy"` // in force
	PolicySource    webhook.PolicySource  `json:"retry_policy_source"`
	CircuitBreaker  breakerView           `json:"circuit_breaker"`
	AutoDisable     any                   `json:"auto_disable"` // disableView, or false
	SuccessStatuses []int                 `json:"success_statuses"`
	AutoReplay      bool                  `json:"auto_replay"`
	Headers         map[string]string     `json:"headers"`
	Auth            *authView             `json:"auth"`
	Certificate     *certificateView      `json:"client_certificate"`
	Description     string                `json:"description"`
	Metadata        map[string]string     `json:"metadata"`
	Condition       *shortCondition       `json:"condition,omitempty"` // of one that is read
	CreatedAt       timestamp             `json:"created_at"`
	UpdatedAt       timestamp             `json:"updated_at"`
}

// shortCondition is how an endpoint is, and why.
type shortCondition struct {
	Code        explain.ConditionCode `json:"code"`
	Cause       *string               `json:"cause"`
	Since       timestamp             `json:"since"`
	LastSuccess timestamp             `json:"last_success_at"`
	Waiting     int                   `json:"waiting"`
	More        bool                  `json:"more"`
}

// addConditions adds to endpoints of the tenant how they are: two reads for all. What cannot be read is left out.
func (s *Server) addConditions(c call, endpoints []webhook.Endpoint, views []endpointView) {
	ctx, ids := c.Request().Context(), make([]webhook.EndpointID, len(endpoints))
	for i := range endpoints {
		ids[i] = endpoints[i].ID
	}
	observed, _, err := s.config.Situations.Observed(ctx, c.tenant, ids)
	if err == nil {
		var waits map[webhook.EndpointID]webhook.Waits
		if waits, err = s.config.Situations.WaitsOf(ctx, c.tenant, ids); err == nil {
			for i := range views {
				views[i].Condition = s.conditionOf(&endpoints[i], observed[ids[i]], waits[ids[i]])
			}
			return
		}
	}
	s.config.Logger.DebugContext(ctx, "endpoints are shown without their conditions", "error", err)
}

func (s *Server) conditionOf(e *webhook.Endpoint, seen webhook.Observation, waits webhook.Waits) *shortCondition {
	is := explain.ConditionOf(&webhook.Health{Endpoint: *e, Observed: seen}, s.config.Now())
	last := waits.LastSuccess
	if seen.LastSuccess.After(last) {
		last = seen.LastSuccess
	}
	return &shortCondition{is.Code, nullable(is.Cause), timestamp(is.Since), timestamp(last), waits.Waiting, waits.More}
}

type breakerView struct {
	Enabled      bool    `json:"enabled"`
	Window       string  `json:"window"`
	MinRequests  int     `json:"min_requests"`
	FailureRatio float64 `json:"failure_ratio"`
	Cooldown     string  `json:"cooldown"`
}

type disableView struct {
	Exhausted24h    int `json:"exhausted_24h"`
	PermanentStreak int `json:"permanent_streak"`
}

func showEndpoint(e webhook.Endpoint) endpointView {
	policy, source := e.PolicyInForce()
	view := endpointView{
		ID: e.ID, TenantID: e.TenantID, URL: e.URL, EventTypes: e.EventTypes, State: e.State, StateReason: nullable(e.StateReason),
		Signature: e.Signature, PublicKey: nullable(e.PublicKey), PayloadFormat: e.PayloadFormat,
		TraceContext: e.TraceContext, Timeout: showTimeout(&e), MaxInFlight: e.MaxInFlight, RateLimit: e.RateLimit,
		RetryPolicy: policy, PolicySource: source,
		CircuitBreaker: breakerView{
			Enabled: e.CircuitBreaker.Enabled, Window: shortDuration(e.CircuitBreaker.Window), MinRequests: e.CircuitBreaker.MinRequests,
			FailureRatio: e.CircuitBreaker.FailureRatio, Cooldown: shortDuration(e.CircuitBreaker.Cooldown),
		},
		AutoDisable: false, SuccessStatuses: append([]int{}, e.SuccessStatuses...), AutoReplay: e.AutoReplay, Headers: showHeaders(e.Headers),
		Auth: showAuth(e.Auth), Certificate: showCertificate(e.Certificate), Description: e.Description,
		Metadata: orEmpty(e.Metadata), CreatedAt: timestamp(e.CreatedAt), UpdatedAt: timestamp(e.UpdatedAt),
	}
	if e.AutoDisable.Enabled {
		view.AutoDisable = disableView{Exhausted24h: e.AutoDisable.Exhausted24h, PermanentStreak: e.AutoDisable.PermanentStreak}
	}
	return view
}

// defaultEndpoint is an endpoint with all fields at their defaults.
func defaultEndpoint() webhook.Endpoint {
	return webhook.Endpoint{
		EventTypes:     allEventTypes(),
		Headers:        map[string]string{},
		Timeout:        webhook.DefaultTimeout,
		MaxInFlight:    webhook.DefaultMaxInFlight,
		RateLimit:      webhook.DefaultRateLimit,
		CircuitBreaker: webhook.DefaultCircuitBreaker(),
		AutoDisable:    webhook.DefaultAutoDisable(),
		Signature:      webhook.SignatureV1,
		Metadata:       map[string]string{},
	}
}

func allEventTypes() []string { return []string{"*"} }

func (s *Server) createEndpoint(c call) error {
	now := s.config.Now().UTC().Truncate(time.Microsecond)
	e := defaultEndpoint()
	e.ID, e.TenantID, e.CreatedAt, e.UpdatedAt = webhook.NewEndpointID(), c.tenant, now, now
	var given givenSecret
	err := c.object(func(d *jsonDecoder, name string) {
		if !given.field(d, name) {
			s.readEndpointField(d, &e, name)
		}
	}, "url")
	if err == nil {
		err = checkAuth(&e)
	}
	own, err := given.read(err)
	if err != nil {
		return err
	}
	made, err := firstSecret(e.Signature, own.NewSecret)
	if err != nil {
		return err
	}
	e.PublicKey = made.PublicKey
	secret := made.Secret
	stored, err := s.config.Endpoints.CreateEndpoint(c.Request().Context(), c.actor(), e, secret)
	if err != nil {
		return err
	}
	view := showEndpoint(stored)
	view.Secret, view.SecretRead, view.SecretWarning = secret, own.Read, own.Warning
	return c.json(http.StatusCreated, view)
}

func (s *Server) getEndpoint(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	e, err := s.config.Endpoints.Endpoint(c.Request().Context(), c.tenant, id)
	if err != nil {
		return err
	}
	views := []endpointView{showEndpoint(e)}
	s.addConditions(c, []webhook.Endpoint{e}, views)
	return c.json(http.StatusOK, views[0])
}

func (s *Server) listEndpoints(c call) error {
	q := c.query("endpoints")
	q.batch = 25 // of up to 130 KiB, most of it headers
	if err := q.problem(); err != nil {
		return err
	}
	if err := s.requireTenant(c); err != nil {
		return err
	}
	fetch := func(limit int, after string) ([]endpointView, error) {
		found, err := s.config.Endpoints.ListEndpoints(c.Request().Context(), c.tenant, pageOf(limit, after))
		views := make([]endpointView, len(found))
		for i := range found {
			views[i] = showEndpoint(found[i])
		}
		if err == nil && len(found) > 0 {
			s.addConditions(c, found, views)
		}
		return views, err
	}
	return list(c, q, fetch, func(v endpointView) string { return idPosition(v.ID) }, func(v endpointView) endpointView { return v })
}

// updateEndpoint is PATCH: an absent field is unchanged, null sets the default. The body is read
// twice: first into a scratch endpoint, to report errors before any lock is taken, then into the
// endpoint under its lock.
func (s *Server) updateEndpoint(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	text, err := c.body()
	if err != nil {
		return err
	}
	trial := defaultEndpoint()
	trial.Headers = nil // unknown before the lock, and so is the client certificate
	if err := s.changeEndpoint(text, &trial, stays); err != nil {
		return err
	}
	stored, err := s.config.Endpoints.UpdateEndpoint(c.Request().Context(), c.actor(), c.tenant, id, func(e *webhook.Endpoint) error {
		e.Headers = orEmpty(e.Headers)
		// Compared with the endpoint under its lock: a concurrent change may have set
		// credentials or another URL.
		moves := trial.URL != "" && !webhook.SameOrigin(e.URL, trial.URL)
		return s.changeEndpoint(text, e, moves)
	})
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, showEndpoint(stored))
}

// stays means that an endpoint's URL keeps its origin.
const stays = false

// changeEndpoint applies the body of a PATCH to an endpoint. If the URL moves to another origin,
// the request must set the stored credentials again.
func (s *Server) changeEndpoint(text []byte, e *webhook.Endpoint, moves bool) error {
	var missing []string
	if moves {
		missing = e.CredentialFields()
	}
	err := readObject(text, func(d *jsonDecoder, name string) {
		missing = slices.DeleteFunc(missing, func(field string) bool { return field == name })
		switch {
		case name == "secret":
			d.note("is set when the endpoint is created and cannot be changed here")
			d.skip()
		case name == "headers" && moves:
			set(d, &e.Headers, map[string]string{}, readHeadersForNewOrigin)
		case name == "client_certificate" && moves:
			set(d, &e.Certificate, webhook.ClientCertificate{}, func(d *jsonDecoder) webhook.ClientCertificate {
				return s.readCertificate(d, webhook.ClientCertificate{}, false)
			})
		default:
			s.readEndpointField(d, e, name)
		}
	})
	if len(missing) == 0 && err != nil {
		return err
	}
	if len(missing) > 0 {
		return withFields(err, missing, "is set and does not follow the URL to another scheme, host or port: send it again in this request, or null")
	}
	return checkAuth(e)
}

// withFields adds field errors with the same message to an error.
func withFields(err error, fields []string, message string) error {
	all := &webhook.Error{Code: webhook.CodeInvalid, Message: invalidRequest}
	if known, ok := errors.AsType[*webhook.Error](err); ok {
		all.Fields = slices.Clone(known.Fields)
	}
	for _, field := range fields {
		all.Fields = append(all.Fields, webhook.FieldError{Field: field, Message: message})
	}
	return all
}

func (s *Server) deleteEndpoint(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	if err := s.config.EndpointSecrets.DeleteEndpoint(c.Request().Context(), c.actor(), c.tenant, id); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
