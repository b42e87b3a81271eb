package api

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/webhook"
)

// Config is the configuration of the API. All interfaces but ConsoleLinks are required.
type Config struct {
	Tenants         Tenants
	Keys            Keys
	Endpoints       Endpoints
	EndpointSecrets EndpointSecrets
	Events          Events
	Erasures        PayloadErasures
	Exports         Exports
	RequestKeys     RequestKeys
	Deliveries      Deliveries
	EndpointSwitch  EndpointSwitch
	Releases        Releases
	Audit           Audit
	Limits          Limits
	TenantUpdates   TenantUpdates
	TenantDeletions TenantDeletions
	Statistics      Statistics

	Health   EndpointHealth
	Circuits Circuits
	Tests    EndpointTests
	Replays  Replays
	// ReplayCounts and DeadLetterGroups count the deliveries that a command to many would affect.
	ReplayCounts     ReplayCounts
	DeadLetterGroups DeadLetterGroups
	Starter          Starter
	URLs             URLs

	// Attention reads what needs attention.
	Attention Attention

	// EventTypes and EventTypeChanges are the catalogue of event types.
	EventTypes       EventTypes
	EventTypeChanges EventTypeChanges
	EventTypeImports EventTypeImports

	Notifications Notifications
	// SendsMail: the installation has a mail server. Defaults to none.
	SendsMail bool

	// Situations and Engine are for explanations.
	Situations Situations
	Engine     Engine
	// Retention is how long the installation keeps payloads, attempts and ended deliveries, which bounds the retention of
	// tenants. Defaults to 30 days.
	Retention time.Duration
	// DeadLettersKept is how long dead letters are kept; 0 if that is not known.
	DeadLettersKept time.Duration

	// PortalOrigins are the origins whose pages may call the operations of portals. Defaults to none.
	PortalOrigins []string

	// ConsoleLinks stores links to the console and portal tokens; nil while the console is switched off. ConsoleURL is the
	// console's address for browsers, without a path. Defaults to the address that a request came to.
	ConsoleLinks ConsoleLinks
	ConsoleURL   string

	// MaxPayload is the largest payload of an event in bytes, at most webhook.LargestMaxPayload. Defaults to
	// webhook.DefaultMaxPayload.
	MaxPayload int

	// OperatorKey is accepted as an operator key in addition to the stored ones. Any text;
	// defaults to none.
	OperatorKey string

	// RetryPolicy is the installation's retry policy. It applies if neither the endpoint nor
	// its tenant has one. Defaults to retry.Default.
	RetryPolicy retry.Policy

	// Logger gets internal errors, and each request at debug level, without payloads, keys
	// and URLs. Defaults to none.
	Logger *slog.Logger

	// WorkflowURL returns the address of a workflow in the Temporal Web UI. Without it
	// workflow_url is null. Tenants' keys get it only with WorkflowURLForTenants.
	WorkflowURL           func(workflowID string) string
	WorkflowURLForTenants bool
	// WorkflowsKept returns how long the Web UI shows a closed workflow; afterwards workflow_url
	// is null. 0: not known, and workflow_url is never null. Defaults to that.
	WorkflowsKept func() time.Duration

	// TrustedProxies are the proxies whose X-Forwarded-For is used as the source of a
	// request. Defaults to none: the source is the peer of the connection.
	TrustedProxies []netip.Prefix

	// Metrics counts requests. Defaults to none.
	Metrics Metrics

	// Tracer makes a span of each request. Defaults to none.
	Tracer *tracing.Tracer

	// Version is shown in the OpenAPI document. Defaults to "dev".
	Version string

	// Accent is the colour of the pages at /docs, as #rrggbb. Defaults to Everpost's.
	Accent string

	// Now is the database's clock. Defaults to time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.RetryPolicy.IsZero() {
		c.RetryPolicy = retry.Default()
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = webhook.DefaultMaxPayload
	}
	if c.Retention == 0 {
		c.Retention = 30 * 24 * time.Hour
	}
	if c.WorkflowURL == nil {
		c.WorkflowURL = func(string) string { return "" }
	}
	if c.WorkflowsKept == nil {
		c.WorkflowsKept = func() time.Duration { return 0 }
	}
	if c.Metrics == nil {
		c.Metrics = noMetrics{}
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}
