// Package config has the operator's settings: each with its variable, default, bounds and
// description, and the rules for combinations of settings.
//
// A setting is declared once, by the tags of its field. The command line, the check of its bounds
// and docs/configuration.md are generated from the tags:
//
//	env          the variable; the flag is its lower-case form without EVERPOST_
//	default      the default
//	unset        what applies without a value, if there is no default
//	help         the description
//	placeholder  an example of a value, for the help of the command line
//	enum         the values that are accepted, separated by commas
//	range        the bounds of a number or duration: "1 to 1000", "1h or more"
//	zero         the meaning of 0, if it is outside the range
//	role         api or worker, if only one of the two commands reads it
//	section      its table in docs/configuration.md
//	credential   "key" or "phrase" (with spaces inside) for what is trimmed of invisible characters, and refused with some inside
//	see          the page in docs/ with more details
//
// Besides these, a process reads only variables of other software from the environment: TEMPORAL_… of
// Temporal's SDK, OTEL_… of OpenTelemetry's (see Tracing), and GOGC and GOMEMLIMIT of the Go runtime.
package config

import (
	"net/netip"
	"time"
)

// Config has the settings of an Everpost process.
type Config struct {
	// Listen is the address of the API. Port 0 selects a free port, here and below.
	Listen string `default:"127.0.0.1:8080" env:"EVERPOST_LISTEN" help:"Address of the API." placeholder:"HOST:PORT" role:"api" section:"process"`

	// AdminListen is the address of /healthz, /readyz, /metrics and /debug/pprof, which have no authentication. Beyond loopback
	// /debug/pprof asks for an operator's key.
	AdminListen string `default:"127.0.0.1:8081" env:"EVERPOST_ADMIN_LISTEN" help:"Address of health checks, metrics and profiles; not for the public." placeholder:"HOST:PORT" section:"process" see:"operations.md#health"`

	// LaneListen is where processes that send requests reach each other, and LaneAddress how. With "off" each counts the limits
	// of endpoints for itself, as standalone does unless there is an address. "auto": see app.
	LaneListen  string `default:"auto" env:"EVERPOST_LANE_LISTEN" help:"Address at which other processes forward new deliveries to this one and request permits from it, so that the limits of endpoints apply to all workers together. 'auto': the address of this machine on the way to PostgreSQL, port 8082 or a free one; standalone: off. 'off': each worker enforces the limits for its own requests." placeholder:"HOST:PORT|auto|off" role:"worker" section:"process" see:"several-workers.md"`
	LaneAddress string `env:"EVERPOST_LANE_ADDRESS" help:"Address at which other processes reach EVERPOST_LANE_LISTEN." placeholder:"HOST:PORT" role:"worker" section:"process" see:"several-workers.md" unset:"the address of this machine on the way to PostgreSQL, and the port of EVERPOST_LANE_LISTEN"`

	// AdminHosts are the host names that the admin listener answers, in addition to IP addresses and localhost.
	AdminHosts Hosts `env:"EVERPOST_ADMIN_HOSTS" help:"Names that the admin listener accepts, in addition to addresses and localhost, separated by commas; '*.example.com' for all below it, 'any' for all." placeholder:"NAME,...|any" section:"process" see:"operations.md#names-of-the-listeners"`

	// TrustedProxies are the reverse proxies in front of the API whose X-Forwarded-For is used.
	TrustedProxies []netip.Prefix `env:"EVERPOST_TRUSTED_PROXIES" help:"Address ranges of reverse proxies whose X-Forwarded-For is trusted, for the audit log, separated by commas." name:"trusted-proxies" placeholder:"CIDR" role:"api" section:"process" see:"privacy.md#audit-log"`

	// WorkflowURLForTenants shows workflow_url to tenants' keys too. The Web UI shows the workflows of all tenants.
	WorkflowURLForTenants bool `env:"EVERPOST_WORKFLOW_URL_FOR_TENANTS" help:"Show 'workflow_url' to tenants' keys, not only to operators'." name:"workflow-url-for-tenants" role:"api" section:"process"`

	// LogLevel is the lowest level of log lines.
	LogLevel string `default:"info" enum:"debug,info,warn,error" env:"EVERPOST_LOG_LEVEL" help:"Lowest level of log lines: debug, info, warn or error." placeholder:"LEVEL" section:"process"`

	// DatabaseURL is the PostgreSQL database. Without it, standalone starts a PostgreSQL cluster of its own; other commands require it.
	DatabaseURL string `credential:"key" env:"EVERPOST_DATABASE_URL" help:"PostgreSQL of the product, as a 'postgres://' URL." placeholder:"URL" section:"database" see:"security-database.md#the-address" unset:"standalone: its own cluster; else required"`

	// DBConnections bounds the connections of the process to DatabaseURL, in all its pools.
	DBConnections int `default:"37" env:"EVERPOST_DB_CONNECTIONS" help:"Most connections of this process to PostgreSQL, in all its pools; with few, requests wait for one." name:"db-connections" placeholder:"N" range:"16 to 1000" section:"database" see:"operations.md#connections-to-postgresql"`

	// OperatorKey is an additional operator key, which is valid as long as it is set.
	OperatorKey string `credential:"phrase" env:"EVERPOST_OPERATOR_KEY" help:"An operator key to accept in addition to those in the database: any secret of 32 characters or more." placeholder:"SECRET" role:"api" section:"keys"`

	// The web console, and the portal.
	Console `embed:""`
	Portal  `embed:""`

	// The mail server for notifications.
	Mail `embed:""`

	// The key-encryption keys for secrets at rest.
	KEKs `embed:""`

	// AllowHTTP allows endpoints with http:// URLs.
	AllowHTTP bool `env:"EVERPOST_ALLOW_HTTP" help:"Allow endpoints with 'http://' URLs." name:"allow-http" section:"egress"`

	// AllowedCIDRs are address ranges that the egress guard allows although they are not public. Addresses of this machine
	// (except loopback) and of metadata services need a range of exactly that address.
	AllowedCIDRs []netip.Prefix `env:"EVERPOST_ALLOWED_CIDRS" help:"Address ranges that endpoints may be in although they are not public, separated by commas; this machine's own addresses and those of cloud metadata services only if named exactly, as '10.20.0.7/32'." name:"allowed-cidrs" placeholder:"CIDR" section:"egress"`

	// DeniedCIDRs are address ranges that the egress guard always refuses.
	DeniedCIDRs []netip.Prefix `env:"EVERPOST_DENIED_CIDRS" help:"Address ranges that endpoints may not be in, whatever else allows them, separated by commas." name:"denied-cidrs" placeholder:"CIDR" section:"egress"`

	// DeniedHosts are names that the egress guard always refuses, with all names below them.
	DeniedHosts []string `env:"EVERPOST_DENIED_HOSTS" help:"Host names that endpoints may not have, separated by commas; 'example.com' stands for all names below it too, '*.example.com' for these only." placeholder:"HOST" section:"egress" see:"egress.md#hosts"`

	// ExtraPorts are allowed destination ports in addition to 443 and 80.
	ExtraPorts Ports `env:"EVERPOST_EXTRA_PORTS" help:"Destination ports in addition to 443 and 80, separated by commas, or 'any'." placeholder:"PORT,...|any" section:"egress"`

	// EgressProxy is a CONNECT proxy for requests to receivers. The URL may contain a password.
	EgressProxy string `credential:"key" env:"EVERPOST_EGRESS_PROXY" help:"Proxy for requests to receivers, by CONNECT: 'http://[user:password@]host:port', or https." placeholder:"URL" section:"egress" see:"egress.md#egress-proxy"`

	// NoProxy are hosts to which requests go directly.
	NoProxy []string `env:"EVERPOST_NO_PROXY" help:"Hosts to which requests go directly and not through EVERPOST_EGRESS_PROXY: names, which stand for all names below them too, and addresses or ranges, each with ':port' or without, separated by commas." placeholder:"HOST" section:"egress" see:"egress.md#egress-proxy"`

	// EgressProxyNames makes the proxy look up names, whose addresses the egress guard then does not check.
	EgressProxyNames bool `env:"EVERPOST_EGRESS_PROXY_NAMES" help:"Send the proxy names instead of addresses: then only the proxy can refuse private addresses of a name." section:"egress" see:"egress.md#names-for-the-proxy"`

	// CAFile has additional certificates (PEM) to verify receivers with.
	CAFile string `env:"EVERPOST_CA_FILE" help:"File with certificates (PEM) to trust for receivers, in addition to the system's." name:"ca-file" placeholder:"FILE" section:"egress"`

	// MaxInFlightPerHost limits the concurrent requests of a worker to one host, over all endpoints there.
	MaxInFlightPerHost int `default:"0" env:"EVERPOST_MAX_IN_FLIGHT_PER_HOST" help:"Requests in flight to one host and port, of all endpoints of all tenants there, in each worker; 0 is no limit." name:"max-in-flight-per-host" placeholder:"N" range:"0 to 10000" role:"worker" section:"egress" see:"isolation.md"`

	// MaxPayload is the largest payload that the API accepts. Stored ones are sent whatever their size.
	MaxPayload ByteSize `default:"256KiB" env:"EVERPOST_MAX_PAYLOAD" help:"Largest payload of an event, in bytes or as 1MiB (413 above it); larger ones that are stored are still sent. The same for every process." name:"max-payload" placeholder:"SIZE" range:"1KiB to 4MiB" section:"deliveries" see:"memory.md#large-payloads"`

	// EventTypes is which event types the API accepts.
	EventTypes string `default:"any" enum:"any,known" env:"EVERPOST_EVENT_TYPES" help:"Event types that are accepted: 'any', or 'known' for those in the catalogue that are not archived (400 for others). The same for every process." placeholder:"any|known" role:"api" section:"deliveries" see:"event-types.md"`

	// RetryPolicy applies if neither the endpoint nor its tenant has a policy.
	RetryPolicy RetryPolicy `default:"default" env:"EVERPOST_RETRY_POLICY" help:"Retry policy of endpoints without one, if their tenant has none either: a preset's name, or JSON; the same for every process." placeholder:"POLICY" section:"deliveries" see:"retries.md#the-policy-in-force"`

	// StartSlots limits the concurrent workflow starts, QueueLength the deliveries that wait for one. Waiting deliveries
	// share a workflow, up to MaxPerWorkflow.
	StartSlots     int `default:"1" env:"EVERPOST_START_SLOTS" help:"Concurrent workflow starts; deliveries that wait for a start share the next one." placeholder:"N" range:"1 to 1000" section:"deliveries"`
	MaxPerWorkflow int `default:"100" env:"EVERPOST_MAX_DELIVERIES_PER_WORKFLOW" help:"Deliveries that may share a workflow; 1 gives each its own." name:"max-deliveries-per-workflow" placeholder:"N" range:"1 to 200" section:"deliveries"`
	QueueLength    int `default:"1000" env:"EVERPOST_QUEUE_LENGTH" help:"Deliveries that may wait for their start before the API makes callers wait; one tenant alone gets half of it." placeholder:"N" range:"1 to 100000" section:"deliveries"`

	// RunningReplays limits the replays that run at a time, of all tenants; TenantRunningReplays those of one.
	RunningReplays int `default:"50" env:"EVERPOST_RUNNING_REPLAYS" help:"Replays that run at a time, of all tenants together; further ones are queued. The same for every process." placeholder:"N" range:"1 to 1000" section:"deliveries" see:"operations.md#replays"`

	// MaxHeld bounds the time for which the clock of a held delivery stands still in a run.
	MaxHeld time.Duration `default:"720h" env:"EVERPOST_MAX_HELD" help:"How long the clock of a delivery may stand still while its endpoint is paused or disabled, or a fault of Everpost prevents sending; then it is given up." placeholder:"DURATION" range:"1h or more" role:"worker" section:"deliveries" see:"delivery-states.md"`

	// WorkerVersioning makes the release the version of the process's worker in Temporal's Worker Versioning.
	WorkerVersioning bool `env:"EVERPOST_WORKER_VERSIONING" help:"Version the worker in Temporal by its release; then 'everpost setup-temporal --make-current' is a step of every upgrade." name:"worker-versioning" role:"worker" section:"deliveries" see:"operations.md#worker-versioning"`

	// ReconcileEvery is the interval of the search for open deliveries whose workflow is gone or stuck.
	ReconcileEvery time.Duration `default:"5m" env:"EVERPOST_RECONCILE_EVERY" help:"How often Everpost looks for open deliveries whose workflow is gone or stuck; the first time is 20 s after a start." placeholder:"DURATION" range:"1s to 24h" section:"deliveries" see:"temporal-ui.md#reconciler-and-stuck-workflows"`

	// Retention is how long finished deliveries, payloads and attempts are kept, DeadLetterRetention how long dead letters are.
	Retention           time.Duration `default:"720h" env:"EVERPOST_RETENTION" help:"How long finished deliveries, payloads and attempts are kept." placeholder:"DURATION" range:"1h or more" section:"retention"`
	DeadLetterRetention time.Duration `default:"720h" env:"EVERPOST_DEAD_LETTER_RETENTION" help:"How long a dead letter waits for a replay before it is discarded." placeholder:"DURATION" range:"1h or more" section:"retention"`

	// AuditRetention is how long the audit log is kept. The database always keeps 29 days of it: one day less than the
	// minimum of this setting, because clocks differ.
	AuditRetention time.Duration `default:"17520h" env:"EVERPOST_AUDIT_RETENTION" help:"How long entries of the audit log are kept." placeholder:"DURATION" range:"720h or more" section:"retention" see:"privacy.md#audit-log"`

	// Default limits of a tenant; 0 means no limit.
	TenantRequestsPerSecond float64 `default:"0" env:"EVERPOST_TENANT_REQUESTS_PER_SECOND" help:"Requests per second with a tenant's keys, in each API process (429 above it); 0 is no limit." placeholder:"N" range:"0.01 to 100000" role:"api" section:"tenants" zero:"no limit"`
	TenantBurst             int     `default:"0" env:"EVERPOST_TENANT_BURST" help:"How many of those requests may come at once; 0 is the number for one second." placeholder:"N" range:"0 to 1000000" role:"api" section:"tenants"`
	TenantEndpoints         int     `default:"1000" env:"EVERPOST_TENANT_ENDPOINTS" help:"Endpoints of a tenant; 0 is no limit." placeholder:"N" range:"0 to 1000000" role:"api" section:"tenants"`
	TenantPendingDeliveries int     `default:"0" env:"EVERPOST_TENANT_PENDING_DELIVERIES" help:"About how many deliveries of a tenant may be pending (429 for events above it); 0 is no limit." placeholder:"N" range:"0 to 1000000" role:"api" section:"tenants"`
	TenantEndpointsPerEvent int     `default:"1000" env:"EVERPOST_TENANT_ENDPOINTS_PER_EVENT" help:"Endpoints that one event may go to (422 above it); 0 is no limit." placeholder:"N" range:"0 to 1000000" role:"api" section:"tenants"`
	TenantRunningReplays    int     `default:"5" env:"EVERPOST_TENANT_RUNNING_REPLAYS" help:"Replays of a tenant that run at a time; further ones are queued; 0 is no limit of its own. The same for every process." placeholder:"N" range:"0 to 1000" section:"tenants" see:"operations.md#replays"`

	// Of requests other than posting events; beside TenantRequestsPerSecond.
	TenantOtherRequestsPerSecond float64 `default:"50" env:"EVERPOST_TENANT_OTHER_REQUESTS_PER_SECOND" help:"Requests per second with a tenant's keys that do not post events, in each API process (429 above it); 0 is no limit." placeholder:"N" range:"0.01 to 100000" role:"api" section:"tenants" zero:"no limit"`
	TenantOtherBurst             int     `default:"200" env:"EVERPOST_TENANT_OTHER_BURST" help:"How many of those requests may come at once; 0 is the number for one second." placeholder:"N" range:"0 to 1000000" role:"api" section:"tenants"`

	// TenantLeastRetryDelay is in force under the retry policies of tenants and endpoints, not under the installation's.
	TenantLeastRetryDelay time.Duration `default:"100ms" env:"EVERPOST_TENANT_LEAST_RETRY_DELAY" help:"Shortest delay before a retry under the policy of a tenant or an endpoint; shorter ones are lengthened to it." placeholder:"DURATION" range:"0s to 1m" role:"worker" section:"tenants" see:"retries.md"`

	// OperatorTenant is the tenant whose endpoints receive the operational events of all tenants. "": none.
	OperatorTenant string `env:"EVERPOST_OPERATOR_TENANT" help:"Tenant whose endpoints get every tenant's operational events (everpost.…); the same for every process." placeholder:"ID" section:"tenants" see:"operational-events.md"`
}

// WebUI is the address of the Temporal Web UI, for the commands that serve the API without a Web UI of their own.
type WebUI struct {
	UIURL string `env:"EVERPOST_UI_URL" help:"Address of the Temporal Web UI, for 'workflow_url'." name:"ui-url" placeholder:"URL" role:"api" section:"process"`
}
