package api

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/filter"
	"github.com/everpost/everpost/internal/webhook"
)

func showEndpoint(e webhook.Endpoint) client.Endpoint {
	policy, source := e.PolicyInForce()
	return client.Endpoint{
		ID: e.ID.String(), TenantID: e.TenantID, URL: e.URL, EventTypes: e.EventTypes, Filter: showFilter(e.Filter),
		Ordering: client.Ordering{By: e.Ordering.By.String()},
		State:    stateOf(e.State), StateReason: nullable(e.StateReason), StateSince: timestamp(e.StateSince), StateBy: nullable(e.StateBy),
		Signature: e.Signature, PublicKey: nullable(e.PublicKey), PayloadFormat: e.PayloadFormat.String(),
		TraceContext: e.TraceContext, Timeout: showTimeout(&e), MaxInFlight: e.MaxInFlight, RateLimit: e.RateLimit,
		RetryPolicy: showPolicy(policy), PolicySource: source.String(),
		CircuitBreaker: client.CircuitBreaker{
			Enabled: e.CircuitBreaker.Enabled, Window: shortDuration(e.CircuitBreaker.Window), MinRequests: e.CircuitBreaker.MinRequests,
			FailureRatio: e.CircuitBreaker.FailureRatio, Cooldown: shortDuration(e.CircuitBreaker.Cooldown),
		},
		AutoDisable:     client.AutoDisable(e.AutoDisable),
		SuccessStatuses: append([]int{}, e.SuccessStatuses...), AutoReplay: e.AutoReplay, Headers: showHeaders(e.Headers),
		Auth: showAuth(e.Auth), Certificate: showCertificate(e.Certificate), Description: e.Description,
		Metadata: orEmpty(e.Metadata), CreatedAt: timestamp(e.CreatedAt), UpdatedAt: timestamp(e.UpdatedAt),
	}
}

// showFilter returns a filter as JSON; nil, null, for none.
func showFilter(f *filter.Filter) json.RawMessage {
	if text := f.Text(); text != "" {
		return json.RawMessage(text)
	}
	return nil
}

func stateOf(s webhook.EndpointState) client.EndpointState { return client.EndpointState(s.String()) }

// endpointHandler makes, shows, changes and deletes endpoints.
type endpointHandler struct {
	endpoints  Endpoints
	secrets    EndpointSecrets
	tenants    tenantReader
	situations Situations
	fields     endpointFields
	warnings   filterWarnings
	now        func() time.Time
	log        *slog.Logger
}

func (h *endpointHandler) create(c call) error {
	now := h.now().UTC().Truncate(time.Microsecond)
	e := defaultEndpoint()
	e.ID, e.TenantID, e.CreatedAt, e.UpdatedAt = webhook.NewEndpointID(), c.tenant, now, now
	text, err := c.body()
	if err == nil {
		err = c.from.refuseFilter(text)
	}
	if err != nil {
		return err
	}
	var given givenSecret
	err = readObject(text, func(d *jsonDecoder, name string) {
		if !given.field(d, name) {
			h.fields.read(d, &e, name)
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
	stored, err := h.endpoints.CreateEndpoint(c.Request().Context(), c.actor(), e, secret)
	if err != nil {
		return err
	}
	view := showEndpoint(stored)
	view.Secret, view.SecretRead, view.SecretWarning = secret, own.Read, own.Warning
	if c.from.hidesSecrets() {
		view.Secret = ""
	}
	view.Warnings = h.warnings.of(c.Request().Context(), stored.Filter, stored.EventTypes)
	return c.json(http.StatusCreated, view)
}

func (h *endpointHandler) get(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	e, err := h.endpoints.Endpoint(c.Request().Context(), c.tenant, id)
	if err != nil {
		return err
	}
	views := []client.Endpoint{showEndpoint(e)}
	h.addConditions(c, []webhook.Endpoint{e}, views)
	return c.json(http.StatusOK, views[0])
}

func (h *endpointHandler) list(c call) error {
	q := c.query("endpoints")
	q.batch = 25 // of up to 130 KiB, most of it headers
	if err := q.problem(); err != nil {
		return err
	}
	if err := requireTenant(c, h.tenants); err != nil {
		return err
	}
	fetch := func(limit int, after string) ([]webhook.Endpoint, string, error) {
		found, err := h.endpoints.ListEndpoints(c.Request().Context(), c.tenant, pageOf(limit, after))
		return found, "", err
	}
	show := func(page []webhook.Endpoint) func(webhook.Endpoint) client.Endpoint {
		views := make([]client.Endpoint, len(page))
		for i := range page {
			views[i] = showEndpoint(page[i])
		}
		if len(page) > 0 {
			h.addConditions(c, page, views)
		}
		return func(webhook.Endpoint) client.Endpoint {
			next := views[0]
			views = views[1:]
			return next
		}
	}
	return listAll(c, q, fetch, func(e webhook.Endpoint) string { return idPosition(e.ID) }, show)
}

// update is PATCH: an absent field is unchanged, null sets the default. The body is read
// twice: first into a scratch endpoint, to report errors before any lock is taken, then into the
// endpoint under its lock.
func (h *endpointHandler) update(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	text, err := c.body()
	if err != nil {
		return err
	}
	if err := c.from.refuseFilter(text); err != nil {
		return err
	}
	trial := defaultEndpoint()
	trial.Headers = nil // unknown before the lock, and so is the client certificate
	if err := h.change(text, &trial, stays); err != nil {
		return err
	}
	stored, err := h.endpoints.UpdateEndpoint(c.Request().Context(), c.actor(), c.tenant, id, func(e *webhook.Endpoint) error {
		e.Headers = orEmpty(e.Headers)
		// Compared with the endpoint under its lock: a concurrent change may have set
		// credentials or another URL.
		moves := trial.URL != "" && !webhook.SameOrigin(e.URL, trial.URL)
		return h.change(text, e, moves)
	})
	if err != nil {
		return err
	}
	view := showEndpoint(stored)
	view.Warnings = h.warnings.of(c.Request().Context(), stored.Filter, stored.EventTypes)
	return c.json(http.StatusOK, view)
}

// stays means that an endpoint's URL keeps its origin.
const stays = false

// change applies the body of a PATCH to an endpoint. If the URL moves to another origin,
// the request must set the stored credentials again.
func (h *endpointHandler) change(text []byte, e *webhook.Endpoint, moves bool) error {
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
				return h.fields.readCertificate(d, webhook.ClientCertificate{}, false)
			})
		default:
			h.fields.read(d, e, name)
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

func (h *endpointHandler) delete(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	if err := h.secrets.DeleteEndpoint(c.Request().Context(), c.actor(), c.tenant, id); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// addConditions adds to endpoints of the tenant how they are: two reads for all. What cannot be read is left out.
func (h *endpointHandler) addConditions(c call, endpoints []webhook.Endpoint, views []client.Endpoint) {
	ctx, ids := c.Request().Context(), make([]webhook.EndpointID, len(endpoints))
	for i := range endpoints {
		ids[i] = endpoints[i].ID
	}
	observed, _, err := h.situations.Observed(ctx, c.tenant, ids)
	if err == nil {
		var waits map[webhook.EndpointID]webhook.Waits
		if waits, err = h.situations.WaitsOf(ctx, c.tenant, ids); err == nil {
			for i := range views {
				views[i].Condition = h.conditionOf(&endpoints[i], observed[ids[i]], waits[ids[i]])
			}
			return
		}
	}
	h.log.DebugContext(ctx, "endpoints are shown without their conditions", "error", err)
}

func (h *endpointHandler) conditionOf(e *webhook.Endpoint, seen webhook.Observation, waits webhook.Waits) *client.ShortCondition {
	is := explain.ConditionOf(&webhook.Health{Endpoint: *e, Observed: seen}, h.now())
	last := waits.LastSuccess
	if seen.LastSuccess.After(last) {
		last = seen.LastSuccess
	}
	return &client.ShortCondition{
		Code: string(is.Code), Cause: nullable(is.Cause), Since: timestamp(is.Since), LastSuccess: timestamp(last), Waiting: waits.Waiting, More: waits.More,
	}
}
