package api

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/everpost/everpost/internal/filter"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Bounds of an endpoint's fields that package webhook does not declare.
const (
	minRateLimit   = 0.01
	minRatio       = 0.01
	maxBreakerTime = 10 * time.Minute // limit of the cooldown, which doubles after each failed probe
	maxCount       = 1_000_000
)

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

// read reads the named field into e; null sets its default.
func (f *endpointFields) read(d *jsonDecoder, e *webhook.Endpoint, name string) {
	initial := defaultEndpoint()
	switch name {
	case "url":
		f.readURL(d, e)
	case "event_types":
		set(d, &e.EventTypes, initial.EventTypes, readEventTypes)
	case "filter":
		set(d, &e.Filter, nil, readFilter)
	case "ordering":
		set(d, &e.Ordering, webhook.Ordering{}, readOrdering)
	case "description":
		set(d, &e.Description, "", readDescription)
	case "headers":
		set(d, &e.Headers, initial.Headers, func(d *jsonDecoder) map[string]string { return readHeaders(d, e.Headers) })
	case "auth":
		set(d, &e.Auth, webhook.Auth{}, f.readAuth)
	case "client_certificate":
		set(d, &e.Certificate, webhook.ClientCertificate{}, func(d *jsonDecoder) webhook.ClientCertificate {
			return f.readCertificate(d, e.Certificate, e.Headers == nil)
		})
	case "retry_policy":
		set(d, &e.RetryPolicy, retry.Policy{}, readRetryPolicy)
	case "circuit_breaker":
		set(d, &e.CircuitBreaker, initial.CircuitBreaker, readCircuitBreaker)
	case "auto_disable":
		set(d, &e.AutoDisable, initial.AutoDisable, readAutoDisable)
	case "success_statuses":
		set(d, &e.SuccessStatuses, nil, readSuccessStatuses)
	case "auto_replay":
		set(d, &e.AutoReplay, false, readBoolean)
	case "signature":
		set(d, &e.Signature, initial.Signature, readSignature)
	case "payload_format":
		set(d, &e.PayloadFormat, initial.PayloadFormat, readPayloadFormat)
	case "trace_context":
		set(d, &e.TraceContext, false, readBoolean)
	case "metadata":
		set(d, &e.Metadata, initial.Metadata, readMetadata)
	default:
		readRequestLimits(d, e, name)
	}
}

// readRequestLimits reads the named field if it is a limit of requests.
func readRequestLimits(d *jsonDecoder, e *webhook.Endpoint, name string) {
	initial := defaultEndpoint()
	switch name {
	case "timeout":
		readTimeout(d, e)
	case "max_in_flight":
		set(d, &e.MaxInFlight, initial.MaxInFlight, func(d *jsonDecoder) int {
			return d.integer(1, webhook.MaxMaxInFlight)
		})
	case "rate_limit_per_second":
		set(d, &e.RateLimit, initial.RateLimit, func(d *jsonDecoder) float64 {
			return d.float(minRateLimit, webhook.MaxRateLimit)
		})
	default:
		d.unknown()
	}
}

func readSuccessStatuses(d *jsonDecoder) []int {
	var statuses []int
	allowed := webhook.RedirectStatuses()
	d.array(func(i int) {
		if i == len(allowed) {
			d.noteParent("has more than " + strconv.Itoa(len(allowed)) + " entries")
		}
		if i >= len(allowed) {
			d.skip()
			return
		}
		status := d.integer(allowed[0], allowed[len(allowed)-1])
		switch {
		case status == 0:
			return
		case !slices.Contains(allowed, status):
			d.note("must be 301, 302, 303, 307 or 308")
		case slices.Contains(statuses, status):
			d.note("is listed more than once")
		}
		statuses = append(statuses, status)
	})
	return statuses
}

// readURL treats null as absent, because the URL has no default.
func (f *endpointFields) readURL(d *jsonDecoder, e *webhook.Endpoint) {
	if d.null() {
		d.note("is required")
		return
	}
	raw, ok := d.str()
	if !ok {
		return
	}
	e.URL = raw
	if len(raw) > webhook.MaxURLBytes {
		d.note("must not be longer than " + strconv.Itoa(webhook.MaxURLBytes) + " bytes")
	} else {
		f.checkURL(d, raw)
	}
}

func readEventTypes(d *jsonDecoder) []string {
	var types []string
	count := d.array(func(i int) {
		if i == webhook.MaxEventTypes {
			d.noteParent("has more than " + strconv.Itoa(webhook.MaxEventTypes) + " entries")
		}
		if i >= webhook.MaxEventTypes {
			d.skip()
			return
		}
		filter, ok := d.str()
		switch {
		case !ok:
			return
		case !webhook.ValidFilter(filter):
			d.note(notAFilter)
		case slices.Contains(types, filter):
			d.note("is listed more than once")
		}
		types = append(types, filter)
	})
	if count == 0 {
		d.note("must name at least one event type; omit it for all types")
	}
	return types
}

// readOrdering reads how an endpoint's deliveries are ordered.
func readOrdering(d *jsonDecoder) (o webhook.Ordering) {
	d.object(func(name []byte) {
		if string(name) != "by" {
			d.unknown()
			return
		}
		text, ok := d.str()
		by, known := webhook.ParseOrderingBy(text)
		if o.By = by; ok && !known {
			d.note(`must be "none" or "number"`)
		}
	}, "by")
	return o
}

// readFilter reads a filter of events; nil for one without conditions.
func readFilter(d *jsonDecoder) *filter.Filter {
	known := len(d.errs)
	text := d.raw()
	if d.broken || len(d.errs) > known {
		return nil
	}
	f, err := filter.Parse(text)
	if err != nil {
		wrong, _ := errors.AsType[*filter.Error](err) // it returns no other error
		d.noteAt(wrong.Place(), wrong.Message)
		return nil
	}
	if f.Text() == "" {
		return nil
	}
	return f
}

// readDescription accepts line breaks.
func readDescription(d *jsonDecoder) string {
	s := d.strMax(maxDescription)
	return s
}

// autoTimeout is the API's name for a timeout that adapts to the latency.
const autoTimeout = "auto"

func readTimeout(d *jsonDecoder, e *webhook.Endpoint) {
	e.Timeout, e.AutoTimeout = webhook.DefaultTimeout, false
	if d.null() {
		return
	}
	if d.next() != '"' {
		d.mismatch(`must be "auto", or a duration in quotes, such as "15s"`)
		return
	}
	s, ok := d.str()
	if !ok {
		return
	}
	if s == autoTimeout {
		e.AutoTimeout = true
		return
	}
	if e.Timeout, ok = within(s, webhook.MinTimeout, webhook.MaxTimeout); !ok {
		d.note(`must be "auto", or ` + aDuration(webhook.MinTimeout, webhook.MaxTimeout))
	}
}

func showTimeout(e *webhook.Endpoint) string {
	if e.AutoTimeout {
		return autoTimeout
	}
	return shortDuration(e.Timeout)
}

func readSignature(d *jsonDecoder) string {
	s, ok := d.str()
	if ok && s != webhook.SignatureV1 && s != webhook.SignatureV1a && s != webhook.SignatureHex {
		d.note(`must be "v1", "v1a" or "hex"`)
	}
	return s
}

func readPayloadFormat(d *jsonDecoder) webhook.PayloadFormat {
	name, ok := d.str()
	format, known := webhook.ParsePayloadFormat(name)
	if ok && !known {
		d.note(`must be "raw" or "envelope"`)
	}
	return format
}

// readCircuitBreaker replaces the whole: what is absent or null has its default.
func readCircuitBreaker(d *jsonDecoder) webhook.CircuitBreaker {
	breaker, initial := webhook.DefaultCircuitBreaker(), webhook.DefaultCircuitBreaker()
	d.object(func(name []byte) {
		switch string(name) {
		case "enabled":
			set(d, &breaker.Enabled, initial.Enabled, readBoolean)
		case "window":
			set(d, &breaker.Window, initial.Window, readBreakerTime)
		case "min_requests":
			set(d, &breaker.MinRequests, initial.MinRequests, readCount)
		case "failure_ratio":
			set(d, &breaker.FailureRatio, initial.FailureRatio, func(d *jsonDecoder) float64 {
				return d.float(minRatio, 1)
			})
		case "cooldown":
			set(d, &breaker.Cooldown, initial.Cooldown, readBreakerTime)
		default:
			d.unknown()
		}
	})
	return breaker
}

func readBreakerTime(d *jsonDecoder) time.Duration {
	return d.duration(time.Second, maxBreakerTime)
}

func readCount(d *jsonDecoder) int {
	return d.integer(1, maxCount)
}

// readAutoDisable reads false, which switches it off, or an object that replaces
// the whole: what is absent or null has its default.
func readAutoDisable(d *jsonDecoder) webhook.AutoDisable {
	disable, initial := webhook.DefaultAutoDisable(), webhook.DefaultAutoDisable()
	switch d.next() {
	case 'f':
		d.literal("false")
		return webhook.AutoDisable{}
	case '{':
	default:
		d.mismatch("must be an object or false")
		return disable
	}
	d.object(func(name []byte) {
		switch string(name) {
		case "exhausted_24h":
			set(d, &disable.Exhausted24h, initial.Exhausted24h, readCount)
		case "permanent_streak":
			set(d, &disable.PermanentStreak, initial.PermanentStreak, readCount)
		default:
			d.unknown()
		}
	})
	return disable
}
