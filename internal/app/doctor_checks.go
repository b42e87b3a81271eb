package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/namespace"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/temporalconn"
	"github.com/everpost/everpost/internal/vault"
	"github.com/everpost/everpost/workflows"
)

const (
	// clockWarning is the difference between two clocks from which on times in logs mislead.
	clockWarning = time.Second

	// A delivery leaves the outbox within milliseconds, or when its workflow is started again: within a minute.
	backlogWarning = 2 * time.Minute

	// Below diskWarning of free space it is time to act. PostgreSQL needs some for its log even while rows are deleted.
	diskWarning = 5 << 30
	diskProblem = 1 << 30
)

func (c *diagnosis) settings(context.Context) Finding {
	switch {
	case c.TemporalErr != nil:
		return problem(oneLine(c.TemporalErr), "correct the settings of Temporal: docs/configuration.md#temporal lists them")
	case len(c.Unknown) > 0:
		return warning("unknown settings: "+strings.Join(c.Unknown, ", "), "correct or remove them; they have no effect")
	}
	return ok("all valid")
}

func (c *diagnosis) database(ctx context.Context) Finding {
	const remedy = "check EVERPOST_DATABASE_URL, and that PostgreSQL runs: docs/security-database.md"
	if c.DatabaseErr != nil {
		return problem(oneLine(c.DatabaseErr), "start it with 'everpost standalone', or name its data directory with --data-dir")
	}
	if c.Config.DatabaseURL == "" {
		return problem("EVERPOST_DATABASE_URL is not set", remedy)
	}
	if err := CheckDatabase(c.Config.DatabaseURL); err != nil {
		return problem(oneLine(err), remedy)
	}
	store, err := stores.Open(ctx, stores.Config{URL: c.Config.DatabaseURL, MaxConns: 2, Logger: c.Logger})
	if err != nil {
		return problem(oneLine(err), remedy)
	}
	err = store.CheckSessions(ctx)
	if err == nil {
		err = store.Ready(ctx)
	}
	if err == nil {
		c.facts, err = store.Facts(ctx)
	}
	switch {
	case errors.Is(err, postgres.ErrPooled):
		store.Close()
		return problem(oneLine(err), "set EVERPOST_DATABASE_URL to the pooler's session mode or to PostgreSQL itself: docs/operations.md#connection-poolers")
	case err != nil:
		store.Close()
		return problem(oneLine(err), remedy)
	}
	c.store = store
	f := c.facts
	return ok("PostgreSQL %s, login %s, %s, the database has %s", f.Version, f.Login, withTLS(f.TLS), bytesText(uint64(max(f.Bytes, 0))))
}

func (c *diagnosis) schema(ctx context.Context) Finding {
	err := c.store.CheckEncoding(ctx)
	if err == nil {
		err = c.store.Migrated(ctx)
	}
	if mismatch, found := errors.AsType[*postgres.MismatchError](err); found {
		return problem(mismatch.What, mismatch.Remedy)
	}
	if err != nil {
		return problem(oneLine(err), "see the finding on the database")
	}
	return ok("up to date")
}

func (c *diagnosis) roles(ctx context.Context) Finding {
	const remedy = "grant the role to the login: docs/security-database.md"
	var may []string
	for _, role := range []struct{ name, purpose string }{{postgres.RoleAPI, "API"}, {postgres.RoleWorker, "worker"}} {
		granted, err := c.store.May(ctx, role.name)
		if err != nil {
			return problem(oneLine(err), remedy)
		}
		if granted {
			may = append(may, role.purpose)
		}
	}
	if len(may) == 0 {
		return problem("the login may run neither the API nor a worker", remedy)
	}
	if c.facts.Superuser && !c.standalone() {
		return warning("the login "+c.facts.Login+" is a superuser, or bypasses row-level security",
			"use logins of their own for the API and the workers: docs/security-database.md")
	}
	return ok("the login may run: %s", strings.Join(may, ", "))
}

func (c *diagnosis) clock(context.Context) Finding {
	ahead := c.store.ClockOffset()
	if ahead.Abs() < clockWarning {
		return ok("within %s of the database's", clockWarning)
	}
	side := "ahead of"
	if ahead < 0 {
		side = "behind"
	}
	return warning(fmt.Sprintf("this machine's clock is %s %s the database's", ahead.Abs().Round(time.Millisecond), side),
		"synchronise both with NTP; Everpost uses the database's, but logs and receivers do not")
}

func (c *diagnosis) keys(ctx context.Context) Finding {
	const remedy = "set EVERPOST_KEK_FILE, or add a missing key to EVERPOST_KEK_OLD_FILES: docs/security-secrets.md"
	keys, err := loadVault(c.Config.KEKs)
	if err != nil {
		return problem(oneLine(err), remedy)
	}
	if keys == nil {
		return problem("no key for secrets at rest is set", remedy)
	}
	defer keys.Close()
	current, err := keys.Current(ctx)
	switch {
	case errors.Is(err, vault.ErrRefused):
		return problem("the key management service rejects the request: "+oneLine(err), "check its token and policy: docs/security-secrets.md")
	case err != nil:
		return problem("the key management service does not answer: "+oneLine(err), "check EVERPOST_KEK_VAULT_ADDR: docs/security-secrets.md")
	case c.store == nil:
		return skipped("a key is set; without the database it is unknown whether it is the right one")
	}
	uses, err := c.store.Encryption.KEKUses(ctx)
	if err != nil {
		return problem(oneLine(err), remedy)
	}
	if missing := usesOf(uses, func(id string) bool { return !keys.Knows(id) && !c.Config.IsLost(id) }); missing != "" {
		return problem("the key is missing that encrypts "+missing, remedy)
	}
	if old := usesOf(uses, func(id string) bool { return id != current }); old != "" {
		return warning("other keys than the current one encrypt "+old, "run 'everpost keys rewrap'")
	}
	return ok("the current key, %s, encrypts every secret", current)
}

func (c *diagnosis) temporal(ctx context.Context) Finding {
	if c.TemporalErr != nil {
		return skipped("the settings of Temporal cannot be used")
	}
	client, err := dialLazily(c.Temporal, c.Logger)
	if err != nil {
		return problem(oneLine(err), "check the settings of Temporal: docs/configuration.md#temporal")
	}
	within, cancel := context.WithTimeout(ctx, checkTimeout/2)
	defer cancel()
	name := NamespaceName(c.Temporal)
	state, err := namespace.Inspect(within, services(client), name, namespace.WorkflowAttributes())
	if err != nil || !state.Exists {
		client.Close()
	} else {
		c.engine = client
	}
	switch {
	case err != nil:
		return problem(oneLine(explainTemporal(ctx, c.Temporal, err)), c.startTemporal())
	case !state.Exists:
		return problem("there is no namespace "+name, "run 'everpost setup-temporal'")
	case state.AttributesErr != nil:
		return warning("the search attributes of namespace "+name+" cannot be used: "+oneLine(state.AttributesErr),
			"compare them with docs/operations.md#temporal-as-a-service")
	case len(state.Missing) > 0:
		return problem("namespace "+name+" lacks the search attributes "+strings.Join(state.Missing, ", "), "run 'everpost setup-temporal'")
	}
	found := fmt.Sprintf("version %s at %s %s, namespace %s keeps a workflow for %s after its end",
		state.ServerVersion, c.Temporal.HostPort, withTLS(c.Temporal.ConnectionOptions.TLS != nil), name, daysText(state.Retention))
	until := temporalconn.ValidUntil(c.Temporal)
	if until.IsZero() {
		return ok("%s", found)
	}
	found += "; the client's certificate is valid until " + until.UTC().Format(time.RFC3339)
	if time.Until(until) < 0 {
		return warning(found, "renew it: a new connection may be refused")
	}
	return ok("%s", found)
}

func withTLS(encrypted bool) string {
	if encrypted {
		return "with TLS"
	}
	return "without TLS"
}

func (c *diagnosis) startTemporal() string {
	if c.standalone() {
		return "start 'everpost standalone', which runs it, or name its address with --temporal-listen"
	}
	return "start it, or correct TEMPORAL_ADDRESS; events are still accepted, and sent when it answers"
}

func (c *diagnosis) workers(ctx context.Context) Finding {
	if c.engine == nil {
		return skipped("Temporal cannot be used")
	}
	polling, err := namespace.Pollers(ctx, services(c.engine), NamespaceName(c.Temporal), workflows.TaskQueue)
	if err != nil {
		return skipped(oneLine(err))
	}
	if polling == 0 {
		return warning("no worker has polled for minutes: events are accepted and not sent", "start 'everpost worker' or 'everpost serve'")
	}
	found := fmt.Sprintf("%d polled within the last 5 minutes", polling)
	if !c.Config.WorkerVersioning {
		return ok("%s", found)
	}
	current, err := currentVersion(ctx, c.engine)
	switch {
	case err != nil:
		return skipped(oneLine(err))
	case current != c.Version:
		return warning(fmt.Sprintf("%s; this release is %s, and the current version is %s", found, c.Version, cmp.Or(current, "that of workers without one")),
			"once workers of this release run: 'everpost setup-temporal --make-current'")
	}
	return ok("%s; %s is the current version", found, current)
}

func (c *diagnosis) backlog(ctx context.Context) Finding {
	n, oldest, err := c.store.Outbox.OutboxDepth(ctx)
	if err != nil {
		return skipped(oneLine(err))
	}
	age := time.Duration(0)
	if !oldest.IsZero() {
		age = max(0, time.Since(oldest)).Round(time.Second)
	}
	count := strconv.FormatInt(n, 10)
	if n > deliveries.MaxCountedOverall {
		count = "more than " + strconv.Itoa(deliveries.MaxCountedOverall)
	}
	if age > backlogWarning {
		return warning(fmt.Sprintf("%s deliveries wait for their first attempt, the oldest for %s", count, age),
			"see the findings on Temporal and workers; 'everpost explain ID' explains a delivery")
	}
	return ok("%s deliveries wait for their first attempt", count)
}

func (c *diagnosis) egress(ctx context.Context) Finding {
	guard := newGuard(c.Config, "", nil)
	if err := guard.LearnOwnAddrs(); err != nil {
		return problem("this machine's own addresses, to which no request may go, cannot be read: "+oneLine(err), "let the process read its network interfaces")
	}
	proxy := c.Config.EgressProxyURL()
	if proxy == nil {
		return ok("%s", describeEgress(c.Config))
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", proxy.Host)
	if err != nil {
		return problem("the proxy "+proxy.Host+" does not answer: "+oneLine(err), "check EVERPOST_EGRESS_PROXY")
	}
	_ = conn.Close()
	if c.Config.EgressProxyNames {
		return ok("%s, by the proxy %s; %s", describeEgress(c.Config), proxy.Host, proxysDuty)
	}
	return ok("%s, by the proxy %s", describeEgress(c.Config), proxy.Host)
}

// proxysDuty is what is said where the proxy looks names up.
const proxysDuty = "it gets names (EVERPOST_EGRESS_PROXY_NAMES), so only its own rules keep requests from private addresses"

// describeEgress says where requests may go.
func describeEgress(c config.Config) string {
	text := "https to public addresses"
	if c.AllowHTTP {
		text = "https and http to public addresses"
	}
	if n := len(c.AllowedCIDRs); n > 0 {
		text += fmt.Sprintf(" and %d further ranges", n)
	}
	if n := len(c.DeniedCIDRs); n > 0 {
		text += fmt.Sprintf(", without %d ranges", n)
	}
	if n := len(c.DeniedHosts); n > 0 {
		text += fmt.Sprintf(", without %d host names", n)
	}
	return text
}

func (c *diagnosis) disk(context.Context) Finding {
	if !c.standalone() {
		return skipped("PostgreSQL's disk cannot be seen from here")
	}
	dir := cmp.Or(c.facts.Directory, c.DataDir)
	free, err := freeSpace(dir)
	if err != nil {
		return problem(oneLine(err), "check --data-dir")
	}
	return diskFinding(free, dir)
}

// diskFinding judges the free space of a directory in bytes.
func diskFinding(free uint64, dir string) Finding {
	text := bytesText(free) + " free for " + dir
	switch {
	case free < diskProblem:
		return problem(text, "free some space now: PostgreSQL stops when the disk is full, and no event is accepted then")
	case free < diskWarning:
		return warning(text, "free some space, or shorten EVERPOST_RETENTION")
	}
	return ok("%s", text)
}

// daysText formats a duration in days where it is a whole number of them.
func daysText(d time.Duration) string {
	const day = 24 * time.Hour
	if d < 2*day || d%day != 0 {
		return d.String()
	}
	return fmt.Sprintf("%d days", d/day)
}

// bytesText formats a size in MiB or GiB.
func bytesText(n uint64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
