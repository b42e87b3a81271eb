package config

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Standalone has the settings of the standalone command only.
type Standalone struct {
	// DataDir holds the private PostgreSQL cluster, the operator's key and the key-encryption key.
	DataDir string `default:".everpost" env:"EVERPOST_DATA_DIR" help:"Directory of the private PostgreSQL, the operator key ('operator.key', mode 0600) and the key-encryption key." placeholder:"DIR" section:"standalone"`

	TemporalListen string `default:"127.0.0.1:7233" env:"EVERPOST_TEMPORAL_LISTEN" help:"Address of the embedded Temporal; it has no authentication." placeholder:"HOST:PORT" section:"standalone"`
	UIListen       string `default:"127.0.0.1:8233" env:"EVERPOST_UI_LISTEN" help:"Address of the Temporal Web UI. Beyond loopback it asks for the session of an operator in the console." name:"ui-listen" placeholder:"HOST:PORT" section:"standalone"`
	UIHosts        Hosts  `env:"EVERPOST_UI_HOSTS" help:"Names that the Temporal Web UI accepts, in addition to addresses and localhost, separated by commas; '*.example.com' for all below it, 'any' for all." name:"ui-hosts" placeholder:"NAME,...|any" section:"standalone" see:"operations.md#names-of-the-listeners"`

	// Dev allows receivers on this machine, for experiments. See AllowDev.
	Dev bool `env:"EVERPOST_DEV" help:"For trying things out: allow endpoints on this machine, over http and on any port." section:"standalone"`

	// Demo is auto (on the first start of an empty data directory) or off.
	Demo string `default:"auto" enum:"auto,off" env:"EVERPOST_DEMO" help:"The demonstration: auto (on the first start of an empty data directory) or off." placeholder:"auto|off" section:"standalone"`

	// TemporalRetention is how long the Web UI shows closed workflows.
	TemporalRetention time.Duration `default:"168h" env:"EVERPOST_TEMPORAL_RETENTION" help:"How long the Temporal Web UI shows workflows that have ended; after that the API has no 'workflow_url'." placeholder:"DURATION" range:"1h or more" section:"standalone"`

	// Shards is the number of Temporal's history shards, which is fixed at the first start.
	Shards int32 `default:"16" env:"EVERPOST_TEMPORAL_SHARDS" help:"History shards of the embedded Temporal, fixed by the first start." placeholder:"N" range:"1 to 4096" section:"standalone"`
}

// Validate checks the settings of the standalone command.
func (s *Standalone) Validate() error {
	var bad refusals
	bad.addListen("EVERPOST_TEMPORAL_LISTEN", s.TemporalListen)
	bad.addListen("EVERPOST_UI_LISTEN", s.UIListen)
	if s.DataDir == "" {
		bad.addf("EVERPOST_DATA_DIR", "must name a directory")
	}
	checkRanges(s, &bad)
	return bad.err()
}

// AllowDev allows receivers on this machine if Dev is set: over http, on any loopback port. It only adds
// to what is allowed. Contradictory settings are an error: a proxy, through which this machine cannot
// be reached, a denied range with loopback addresses, and EVERPOST_ALLOW_HTTP=false in the environment.
func (s *Standalone) AllowDev(c *Config, environ []string) error {
	if !s.Dev {
		return nil
	}
	var bad refusals
	if c.EgressProxy != "" {
		bad.addf("EVERPOST_DEV", "is set together with EVERPOST_EGRESS_PROXY, through which endpoints on this machine cannot be reached; unset one of them")
	}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if allowed, err := strconv.ParseBool(value); name == "EVERPOST_ALLOW_HTTP" && err == nil && !allowed {
			bad.addf("EVERPOST_DEV", "is set together with EVERPOST_ALLOW_HTTP=%s, but allows http; unset one of them", value)
		}
	}
	loopbacks := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	for _, denied := range c.DeniedCIDRs {
		if slices.ContainsFunc(loopbacks, denied.Overlaps) {
			bad.addf("EVERPOST_DEV", "is set together with %s in EVERPOST_DENIED_CIDRS, which denies addresses of this machine; unset one of them", denied)
		}
	}
	if len(bad) > 0 {
		return bad.err()
	}
	c.AllowHTTP, c.ExtraPorts = true, Ports{Any: true}
	for _, prefix := range loopbacks {
		if !slices.Contains(c.AllowedCIDRs, prefix) {
			c.AllowedCIDRs = append(c.AllowedCIDRs, prefix)
		}
	}
	return nil
}
