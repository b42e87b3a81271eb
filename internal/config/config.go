// Package config is what an operator can set: one struct with its defaults, the
// names of its environment variables and its rules. The command line fills it in
// (the tags are read by internal/cli; role names the only one of the commands api and worker
// that a setting is for). Beside it only others' conventions are read from
// the environment: TEMPORAL_… by the SDK, GOGC and GOMEMLIMIT in standalone.
package config

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/retry"
)

// Config is the settings of an Everpost process.
type Config struct {
	// Listen is where the API (and the console) is served. Port 0 means a free one, here and below.
	Listen string `default:"127.0.0.1:8080" env:"EVERPOST_LISTEN" help:"Address of the API." placeholder:"HOST:PORT" role:"api"`

	// AdminListen is where /healthz, /readyz, /metrics and /debug/pprof are served. Not for the public.
	AdminListen string `default:"127.0.0.1:8081" env:"EVERPOST_ADMIN_LISTEN" help:"Address of health checks, metrics and profiles." placeholder:"HOST:PORT"`

	// AdminHosts are the names by which it may be asked, beside addresses and localhost.
	AdminHosts Hosts `env:"EVERPOST_ADMIN_HOSTS" help:"Names that the admin listener answers to beside addresses and localhost, separated by commas; '*.example.com' for all below it, 'any' for all." placeholder:"NAME,...|any"`

	// DatabaseURL is the product's PostgreSQL. Standalone brings its own when it is empty; elsewhere it is required.
	DatabaseURL string `env:"EVERPOST_DATABASE_URL" help:"PostgreSQL of the product, as a postgres:// URL." placeholder:"URL"`

	// OperatorKey presets an operator key: a secret of 32 characters or more. It works for as long as it is set.
	OperatorKey string `env:"EVERPOST_OPERATOR_KEY" help:"An operator key to accept beside those in the database: any secret of 32 characters or more." placeholder:"SECRET" role:"api"`

	// OperatorTenant is the tenant whose endpoints are told of every tenant's operational events. Empty: none.
	OperatorTenant string `env:"EVERPOST_OPERATOR_TENANT" help:"Tenant whose endpoints are told of every tenant's operational events (everpost.…)." placeholder:"ID"`

	// The keys for secrets at rest.
	KEKs `embed:""`

	// AllowHTTP lets endpoints have http:// URLs.
	AllowHTTP bool `env:"EVERPOST_ALLOW_HTTP" help:"Allow endpoints with http:// URLs." name:"allow-http"`

	// AllowedCIDRs are address ranges that the egress guard lets through although they are not public. This machine's own
	// addresses but for loopback, and those of metadata services, are let through by a range of exactly that address only.
	AllowedCIDRs []netip.Prefix `env:"EVERPOST_ALLOWED_CIDRS" help:"Address ranges that endpoints may be in although they are not public, separated by commas." name:"allowed-cidrs" placeholder:"CIDR"`

	// DeniedCIDRs are address ranges that the egress guard refuses whatever else allows them.
	DeniedCIDRs []netip.Prefix `env:"EVERPOST_DENIED_CIDRS" help:"Address ranges that endpoints may not be in, whatever else allows them, separated by commas." name:"denied-cidrs" placeholder:"CIDR"`

	// ExtraPorts are destination ports beside 443 and 80.
	ExtraPorts Ports `env:"EVERPOST_EXTRA_PORTS" help:"Destination ports beside 443 and 80, separated by commas, or 'any'." placeholder:"PORT,...|any"`

	// EgressProxy is a proxy that requests to receivers go through, by CONNECT. It may hold a password.
	EgressProxy string `env:"EVERPOST_EGRESS_PROXY" help:"Proxy for requests to receivers, by CONNECT: http://[user:password@]host:port." placeholder:"URL"`

	// CAFile holds certificates (PEM) that receivers are verified with, beside the system's.
	CAFile string `env:"EVERPOST_CA_FILE" help:"File with certificates (PEM) to trust for receivers beside the system's." name:"ca-file" placeholder:"FILE"`

	// TrustedProxies are where reverse proxies before the API are: their X-Forwarded-For says where a request came from.
	TrustedProxies []netip.Prefix `env:"EVERPOST_TRUSTED_PROXIES" help:"Address ranges of reverse proxies whose X-Forwarded-For is believed, for the audit log, separated by commas." name:"trusted-proxies" placeholder:"CIDR" role:"api"`

	// WorkflowURLForTenants shows workflow_url to tenants' keys too: the Web UI shows the workflows of all tenants.
	WorkflowURLForTenants bool `env:"EVERPOST_WORKFLOW_URL_FOR_TENANTS" help:"Show workflow_url to tenants' keys, not only to operators'." name:"workflow-url-for-tenants" role:"api"`

	// RetryPolicy is that of endpoints that have none of their own, nor their tenant.
	RetryPolicy RetryPolicy `default:"default" env:"EVERPOST_RETRY_POLICY" help:"Retry policy of endpoints that have none, nor their tenant: a preset's name, or JSON." placeholder:"POLICY"`

	// Retention is how long finished deliveries, payloads and attempts are kept, DeadLetterRetention how long dead letters are.
	Retention           time.Duration `default:"720h" env:"EVERPOST_RETENTION" help:"How long finished deliveries, payloads and attempts are kept." placeholder:"DURATION"`
	DeadLetterRetention time.Duration `default:"720h" env:"EVERPOST_DEAD_LETTER_RETENTION" help:"How long dead letters are kept before they are discarded." placeholder:"DURATION"`

	// AuditRetention is how long the audit log is kept. The database keeps 29 days of it, whatever is set.
	AuditRetention time.Duration `default:"17520h" env:"EVERPOST_AUDIT_RETENTION" help:"How long entries of the audit log are kept." placeholder:"DURATION"`

	// Limits of every tenant that has none of its own; 0 is no limit.
	TenantRequestsPerSecond float64 `default:"0" env:"EVERPOST_TENANT_REQUESTS_PER_SECOND" help:"Requests per second with a tenant's keys, unless the tenant has a limit of its own; 0 is no limit." placeholder:"N" role:"api"`
	TenantBurst             int     `default:"0" env:"EVERPOST_TENANT_BURST" help:"How many of those requests may come at once; 0 is those of a second." placeholder:"N" role:"api"`
	TenantEndpoints         int     `default:"0" env:"EVERPOST_TENANT_ENDPOINTS" help:"Endpoints of a tenant, unless it has a limit of its own; 0 is no limit." placeholder:"N" role:"api"`
	TenantPendingDeliveries int     `default:"0" env:"EVERPOST_TENANT_PENDING_DELIVERIES" help:"Deliveries of a tenant that may be pending, unless it has a limit of its own; 0 is no limit." placeholder:"N" role:"api"`
	TenantEndpointsPerEvent int     `default:"0" env:"EVERPOST_TENANT_ENDPOINTS_PER_EVENT" help:"Endpoints that one event may go to, unless its tenant has a limit of its own; 0 is no limit." placeholder:"N" role:"api"`

	// LogLevel is the least level that is written.
	LogLevel string `default:"info" enum:"debug,info,warn,error" env:"EVERPOST_LOG_LEVEL" help:"Least level of log lines: debug, info, warn or error." placeholder:"LEVEL"`

	// StartSlots bounds the workflow starts under way, QueueLength the deliveries that wait for theirs.
	// What waits shares a workflow for its first attempts, up to MaxPerWorkflow.
	StartSlots     int `default:"1" env:"EVERPOST_START_SLOTS" help:"Workflow starts under way at a time; what waits for one shares the next." placeholder:"N"`
	MaxPerWorkflow int `default:"100" env:"EVERPOST_MAX_DELIVERIES_PER_WORKFLOW" help:"Deliveries that may share a workflow for their first attempts; 1 gives each its own." name:"max-deliveries-per-workflow" placeholder:"N"`
	// MaxInFlightPerHost bounds the requests under way to one host, of all endpoints there, in a worker; 0 is no bound.
	MaxInFlightPerHost int `default:"0" env:"EVERPOST_MAX_IN_FLIGHT_PER_HOST" help:"Requests under way at a time to one host and port, of all endpoints there, in each worker; 0 is no limit." name:"max-in-flight-per-host" placeholder:"N" role:"worker"`
	// ReconcileEvery is how often open deliveries are looked for that no workflow carries.
	ReconcileEvery time.Duration `default:"5m" env:"EVERPOST_RECONCILE_EVERY" help:"How often open deliveries are looked for whose workflow is gone." placeholder:"DURATION"`
	QueueLength    int           `default:"1000" env:"EVERPOST_QUEUE_LENGTH" help:"Deliveries that may wait for their start before the API makes callers wait." placeholder:"N"`
}

// Standalone is what only the standalone command has.
type Standalone struct {
	// DataDir holds the private PostgreSQL cluster, the operator's key and the key-encryption key.
	DataDir string `default:".everpost" env:"EVERPOST_DATA_DIR" help:"Directory of the private PostgreSQL, the operator key and the key-encryption key." placeholder:"DIR"`

	TemporalListen string `default:"127.0.0.1:7233" env:"EVERPOST_TEMPORAL_LISTEN" help:"Address of the embedded Temporal." placeholder:"HOST:PORT"`
	UIListen       string `default:"127.0.0.1:8233" env:"EVERPOST_UI_LISTEN" help:"Address of the Temporal Web UI." name:"ui-listen" placeholder:"HOST:PORT"`
	UIHosts        Hosts  `env:"EVERPOST_UI_HOSTS" help:"Names that the Temporal Web UI answers to beside addresses and localhost, separated by commas; '*.example.com' for all below it, 'any' for all." name:"ui-hosts" placeholder:"NAME,...|any"`

	// Dev is for trying things out: receivers on this machine are allowed. See AllowDev.
	Dev bool `env:"EVERPOST_DEV" help:"For trying things out: allow endpoints on this machine, over http and on any port."`

	// Demo is auto (on the first start of an empty data directory) or off.
	Demo string `default:"auto" enum:"auto,off" env:"EVERPOST_DEMO" help:"The demonstration: auto (on the first start) or off." placeholder:"auto|off"`

	// TemporalRetention is how long workflows that have ended can be looked at in the Web UI.
	TemporalRetention time.Duration `default:"168h" env:"EVERPOST_TEMPORAL_RETENTION" help:"How long workflows that have ended can be looked at in the Temporal Web UI." placeholder:"DURATION"`

	// Shards is the number of Temporal's history shards; it cannot be changed after the first start.
	Shards int32 `default:"16" env:"EVERPOST_TEMPORAL_SHARDS" help:"History shards of the embedded Temporal, fixed by the first start." placeholder:"N"`
}

// minOperatorKey is the length of a preset operator key that nobody guesses.
const minOperatorKey = 32

// minDifferent is of how many different characters it is made at least: 32 random digits
// of hexadecimal hardly ever have fewer than ten.
const minDifferent = 8

// minAuditRetention is a day more than what the database keeps: clocks differ.
const minAuditRetention = 720 * time.Hour

// A tenant's id, as internal/webhook has it: this package knows no other.
const (
	tenantAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	maxTenantID    = 64

	maxTenantLimit = 1_000_000
	minTenantRate  = 0.01
	maxTenantRate  = 100_000
)

// Ports are destination ports; Any allows all.
type Ports struct {
	Any  bool
	List []uint16
}

// RetryPolicy is a retry policy as it was set; nothing is the preset default.
type RetryPolicy struct{ Policy retry.Policy }

// UnmarshalText reads a preset's name, or a policy as the API takes it. The error names
// each setting that is refused.
func (p *RetryPolicy) UnmarshalText(text []byte) (err error) {
	if p.Policy = retry.Default(); strings.TrimSpace(string(text)) != "" {
		p.Policy, err = retry.ParseSetting(string(text))
	}
	return err
}

// MarshalText is the inverse of UnmarshalText.
func (p RetryPolicy) MarshalText() ([]byte, error) {
	if preset, found := retry.Lookup(p.Policy.Preset); found && preset.Equal(p.Policy) {
		return []byte(p.Policy.Preset), nil
	}
	return p.Policy.MarshalJSON()
}

var (
	_ encoding.TextUnmarshaler = (*RetryPolicy)(nil)
	_ encoding.TextMarshaler   = RetryPolicy{}
	_ encoding.TextUnmarshaler = (*Ports)(nil)
	_ encoding.TextMarshaler   = Ports{}
)

// UnmarshalText reads "any" or a list of ports separated by commas.
func (p *Ports) UnmarshalText(text []byte) error {
	*p = Ports{}
	if strings.TrimSpace(string(text)) == "" {
		return nil
	}
	if strings.TrimSpace(string(text)) == "any" {
		p.Any = true
		return nil
	}
	for field := range strings.SplitSeq(string(text), ",") {
		port, err := strconv.ParseUint(strings.TrimSpace(field), 10, 16)
		if err != nil || port == 0 {
			return fmt.Errorf("%q is not a port between 1 and 65535, nor 'any'", strings.TrimSpace(field))
		}
		p.List = append(p.List, uint16(port))
	}
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (p Ports) MarshalText() ([]byte, error) {
	if p.Any {
		return []byte("any"), nil
	}
	fields := make([]string, len(p.List))
	for i, port := range p.List {
		fields[i] = strconv.Itoa(int(port))
	}
	return []byte(strings.Join(fields, ",")), nil
}

// Hosts are host names; Any stands for all.
type Hosts struct {
	Any   bool
	Names []string // in lower case, "*.example.com" for all below example.com
}

var (
	_ encoding.TextUnmarshaler = (*Hosts)(nil)
	_ encoding.TextMarshaler   = Hosts{}
)

// hostName is a name as a Host field has it: without scheme, port and path. Addresses need not be named.
var hostName = regexp.MustCompile(`^(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

// UnmarshalText reads "any" or a list of names separated by commas.
func (h *Hosts) UnmarshalText(text []byte) error {
	*h = Hosts{}
	if strings.TrimSpace(string(text)) == "" {
		return nil
	}
	if strings.TrimSpace(string(text)) == "any" {
		h.Any = true
		return nil
	}
	for field := range strings.SplitSeq(string(text), ",") {
		name := strings.TrimSuffix(strings.ToLower(strings.TrimSpace(field)), ".")
		if !hostName.MatchString(name) {
			return fmt.Errorf("%q is not a host name, such as everpost.internal or *.example.com, without scheme and port, nor 'any'", strings.TrimSpace(field))
		}
		h.Names = append(h.Names, name)
	}
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (h Hosts) MarshalText() ([]byte, error) {
	if h.Any {
		return []byte("any"), nil
	}
	return []byte(strings.Join(h.Names, ",")), nil
}

// Validate checks every setting and names each that is unusable, as the variable
// an operator would mend.
func (c *Config) Validate() error {
	var bad []error
	refuse := func(name, format string, args ...any) {
		bad = append(bad, fmt.Errorf("%s: %s", name, fmt.Sprintf(format, args...)))
	}
	for name, address := range map[string]string{"EVERPOST_LISTEN": c.Listen, "EVERPOST_ADMIN_LISTEN": c.AdminListen} {
		if err := CheckListen(address); err != nil {
			refuse(name, "%s", err)
		}
	}
	if c.DatabaseURL != "" {
		if err := CheckDatabaseURL(c.DatabaseURL); err != nil {
			refuse("EVERPOST_DATABASE_URL", "%s", err)
		}
	}
	c.validateKEKs(refuse)
	if c.OperatorKey != "" && !hardToGuess(c.OperatorKey) {
		refuse("EVERPOST_OPERATOR_KEY",
			"must be a secret of %d characters or more, %d of them different, and no repeated word; 'openssl rand -hex 32' makes one",
			minOperatorKey, minDifferent)
	}
	if strings.Trim(c.OperatorTenant, tenantAlphabet) != "" || len(c.OperatorTenant) > maxTenantID {
		refuse("EVERPOST_OPERATOR_TENANT", "must be the id of a tenant: at most %d of A-Z, a-z, 0-9, _ and -", maxTenantID)
	}
	c.validateCIDRs(refuse)
	if _, err := c.RootCAs(); err != nil {
		refuse("EVERPOST_CA_FILE", "%s", err)
	}
	if c.EgressProxy != "" && c.EgressProxyURL() == nil {
		refuse("EVERPOST_EGRESS_PROXY", "must be http://host:port, or http://user:password@host:port") // never the value, as above
	}
	for _, p := range c.TrustedProxies {
		if wrong := notProxies(p); wrong != "" {
			refuse("EVERPOST_TRUSTED_PROXIES", "%s %s", p, wrong)
		}
	}
	c.validateNumbers(refuse)
	return joined(bad)
}

// notProxies is what is wrong with a range of trusted proxies, "" when nothing is.
func notProxies(p netip.Prefix) string {
	switch {
	case p.Bits() == 0:
		return "would let everybody say where a request comes from; name the proxies' addresses"
	case p.Addr().Is4In6():
		return "is an IPv4 address in IPv6 form; write it as IPv4"
	case p != p.Masked():
		return "has bits beyond its length; write " + p.Masked().String() + ", or a longer prefix"
	}
	return ""
}

// validateCIDRs tells refuse which ranges are too wide, or would have no effect.
func (c *Config) validateCIDRs(refuse func(name, format string, args ...any)) {
	for _, prefix := range c.AllowedCIDRs {
		if prefix.Bits() == 0 {
			refuse("EVERPOST_ALLOWED_CIDRS", "%q allows every address, those of your own network too; name the ranges that receivers are in", prefix)
		}
	}
	for name, list := range map[string][]netip.Prefix{"EVERPOST_ALLOWED_CIDRS": c.AllowedCIDRs, "EVERPOST_DENIED_CIDRS": c.DeniedCIDRs} {
		for _, prefix := range list {
			if prefix != prefix.Masked() {
				refuse(name, "%q has bits beyond its length; write %s, or a longer prefix", prefix, prefix.Masked())
			}
			if prefix.Addr().Is4In6() {
				refuse(name, "%q is a range of IPv4 addresses in IPv6 form, which are refused anyway; write it as IPv4", prefix)
			}
		}
	}
}

// CheckDatabaseURL reports whether the text is a URL of PostgreSQL. The error does not repeat it: it
// may hold a password.
func CheckDatabaseURL(text string) error {
	if u, err := url.Parse(text); err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return errors.New("must be a URL of the form postgres://user:password@host:5432/database")
	}
	return nil
}

// hardToGuess reports whether a key may have been made by a machine: it is long, neither
// a repetition nor made of few characters.
func hardToGuess(key string) bool {
	different := map[rune]bool{}
	for _, c := range key {
		different[c] = true
	}
	repeats := strings.Contains((key + key)[1:max(2*len(key)-1, 1)], key)
	return len(key) >= minOperatorKey && len(different) >= minDifferent && !repeats
}

// validateNumbers tells refuse which are out of their bounds.
func (c *Config) validateNumbers(refuse func(name, format string, args ...any)) {
	for name, n := range map[string]struct{ value, least, most int }{
		"EVERPOST_START_SLOTS":                 {c.StartSlots, 1, 1000},
		"EVERPOST_MAX_DELIVERIES_PER_WORKFLOW": {c.MaxPerWorkflow, 1, 200},
		"EVERPOST_QUEUE_LENGTH":                {c.QueueLength, 1, 100_000},
		"EVERPOST_MAX_IN_FLIGHT_PER_HOST":      {c.MaxInFlightPerHost, 0, 10_000},
		"EVERPOST_TENANT_BURST":                {c.TenantBurst, 0, maxTenantLimit},
		"EVERPOST_TENANT_ENDPOINTS":            {c.TenantEndpoints, 0, maxTenantLimit},
		"EVERPOST_TENANT_PENDING_DELIVERIES":   {c.TenantPendingDeliveries, 0, maxTenantLimit},
		"EVERPOST_TENANT_ENDPOINTS_PER_EVENT":  {c.TenantEndpointsPerEvent, 0, maxTenantLimit},
	} {
		if n.value < n.least || n.value > n.most {
			refuse(name, "must be between %d and %d", n.least, n.most)
		}
	}
	if r := c.TenantRequestsPerSecond; r != 0 && !(r >= minTenantRate && r <= maxTenantRate) { // also NaN
		refuse("EVERPOST_TENANT_REQUESTS_PER_SECOND", "must be 0, for no limit, or between %g and %d", minTenantRate, maxTenantRate)
	}
	for name, span := range map[string]struct {
		value, least, most time.Duration
		says               string
	}{
		"EVERPOST_RETENTION":             {c.Retention, time.Hour, math.MaxInt64, "at least 1h"},
		"EVERPOST_DEAD_LETTER_RETENTION": {c.DeadLetterRetention, time.Hour, math.MaxInt64, "at least 1h"},
		"EVERPOST_AUDIT_RETENTION":       {c.AuditRetention, minAuditRetention, math.MaxInt64, "at least 720h"},
		"EVERPOST_RECONCILE_EVERY":       {c.ReconcileEvery, time.Second, 24 * time.Hour, "between 1s and 24h"},
	} {
		if span.value < span.least || span.value > span.most {
			refuse(name, "must be %s", span.says)
		}
	}
}

// EgressProxyURL is EgressProxy, taken apart; nil when it is empty or not valid.
func (c *Config) EgressProxyURL() *url.URL {
	u, err := url.Parse(c.EgressProxy)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return nil
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
		return nil
	}
	return u
}

// RequireCluster checks what a process needs that brings neither PostgreSQL nor keys of its own.
func (c *Config) RequireCluster(keys bool) error {
	var bad []error
	if c.DatabaseURL == "" {
		bad = append(bad, errors.New("EVERPOST_DATABASE_URL: is required (only 'everpost standalone' brings its own PostgreSQL)"))
	}
	if keys && !c.AnyKEK() {
		bad = append(bad, errNoKEK)
	}
	return joined(bad)
}

// Validate checks the settings of the standalone command.
func (s *Standalone) Validate() error {
	var bad []error
	for name, address := range map[string]string{"EVERPOST_TEMPORAL_LISTEN": s.TemporalListen, "EVERPOST_UI_LISTEN": s.UIListen} {
		if err := CheckListen(address); err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", name, err))
		}
	}
	if s.TemporalRetention < time.Hour {
		bad = append(bad, errors.New("EVERPOST_TEMPORAL_RETENTION: must be at least 1h"))
	}
	if s.DataDir == "" {
		bad = append(bad, errors.New("EVERPOST_DATA_DIR: must name a directory"))
	}
	if s.Shards < 1 || s.Shards > 4096 {
		bad = append(bad, errors.New("EVERPOST_TEMPORAL_SHARDS: must be between 1 and 4096"))
	}
	return joined(bad)
}

// AllowDev opens the way to receivers on this machine when Dev is set: over http, on any port of
// loopback. It adds to what is allowed and takes nothing away. What contradicts it is an error: a
// proxy, behind which this machine is another one, a denied range with addresses of it, and, in the
// environment, a plain no to http.
func (s *Standalone) AllowDev(c *Config, environ []string) error {
	if !s.Dev {
		return nil
	}
	var bad []error
	if c.EgressProxy != "" {
		bad = append(bad, errors.New("EVERPOST_DEV: is set together with EVERPOST_EGRESS_PROXY, "+
			"through which endpoints on this machine cannot be reached; unset one of them"))
	}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if allowed, err := strconv.ParseBool(value); name == "EVERPOST_ALLOW_HTTP" && err == nil && !allowed {
			bad = append(bad, errors.New("EVERPOST_DEV: is set together with EVERPOST_ALLOW_HTTP="+value+", but allows http; unset one of them"))
		}
	}
	loopbacks := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	for _, denied := range c.DeniedCIDRs {
		if slices.ContainsFunc(loopbacks, denied.Overlaps) {
			bad = append(bad, fmt.Errorf("EVERPOST_DEV: is set together with %s in EVERPOST_DENIED_CIDRS, "+
				"which denies addresses of this machine; unset one of them", denied))
		}
	}
	if len(bad) > 0 {
		return joined(bad)
	}
	c.AllowHTTP, c.ExtraPorts = true, Ports{Any: true}
	for _, prefix := range loopbacks {
		if !slices.Contains(c.AllowedCIDRs, prefix) {
			c.AllowedCIDRs = append(c.AllowedCIDRs, prefix)
		}
	}
	return nil
}

func joined(bad []error) error {
	sort.Slice(bad, func(i, j int) bool { return bad[i].Error() < bad[j].Error() })
	return errors.Join(bad...)
}

// CheckListen reports whether address is one to listen on: host:port, where the
// host may be empty and the port 0.
func CheckListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return errors.New("must be host:port, for example 127.0.0.1:8080")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("has the port %q; it must be a number from 0 to 65535", port)
	}
	return nil
}

// Unknown returns the names in environ (as os.Environ gives them) that look like
// settings of Everpost and are none, given the names that are.
func Unknown(environ []string, known map[string]bool) []string {
	var unknown []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "EVERPOST_") && !strings.HasPrefix(name, "EVERPOST_TEST_") && !known[name] {
			unknown = append(unknown, name)
		}
	}
	sort.Strings(unknown)
	return unknown
}
