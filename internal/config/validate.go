package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	// minOperatorKey is the minimum length of a preset operator key, and minDifferent the minimum
	// number of different characters: 32 random hexadecimal digits almost always have at least
	// ten.
	minOperatorKey = 32
	minDifferent   = 8

	// The rule for a tenant's id is that of internal/webhook, which this package does not import.
	tenantAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	maxTenantID    = 64
)

// Validate checks every setting and returns an error for each invalid one, with its variable. It removes what is invisible around
// credentials.
func (c *Config) Validate() error {
	var bad refusals
	cleanCredentials(c, &bad)
	cleanCredentials(&c.KEKs, &bad)
	cleanCredentials(&c.Mail, &bad)
	bad.addListen("EVERPOST_LISTEN", c.Listen)
	bad.addListen("EVERPOST_ADMIN_LISTEN", c.AdminListen)
	c.validateLanes(&bad)
	if c.DatabaseURL != "" {
		if err := CheckDatabaseURL(c.DatabaseURL); err != nil {
			bad.addf("EVERPOST_DATABASE_URL", "%s", err)
		}
	}
	c.validateKEKs(&bad)
	if c.OperatorKey != "" && !hardToGuess(c.OperatorKey) {
		bad.addf("EVERPOST_OPERATOR_KEY",
			"must be a secret of %d characters or more, %d of them different, and no repeated word; 'openssl rand -hex 32' makes one",
			minOperatorKey, minDifferent)
	}
	if strings.Trim(c.OperatorTenant, tenantAlphabet) != "" || len(c.OperatorTenant) > maxTenantID {
		bad.addf("EVERPOST_OPERATOR_TENANT", "must be the id of a tenant: at most %d of A-Z, a-z, 0-9, _ and -", maxTenantID)
	}
	c.validateCIDRs(&bad)
	c.Console.validate(&bad)
	c.Portal.validate(&bad)
	c.Mail.validate(c.ConsoleURL, &bad)
	if _, err := c.RootCAs(); err != nil {
		bad.addf("EVERPOST_CA_FILE", "%s", err)
	}
	c.validateProxy(&bad)
	for _, p := range c.TrustedProxies {
		if wrong := notProxies(p); wrong != "" {
			bad.addf("EVERPOST_TRUSTED_PROXIES", "%s %s", p, wrong)
		}
	}
	checkRanges(c, &bad)
	return bad.err()
}

// The values of LaneListen that are no addresses.
const (
	LaneAuto = "auto"
	LaneOff  = "off"
)

// SharesLimits reports whether a process with a worker shares the limits of endpoints with others.
func (c *Config) SharesLimits() bool { return c.LaneListen != "" && c.LaneListen != LaneOff }

func (c *Config) validateLanes(bad *refusals) {
	if c.SharesLimits() && c.LaneListen != LaneAuto {
		bad.addListen("EVERPOST_LANE_LISTEN", c.LaneListen)
	}
	if c.LaneAddress == "" {
		return
	}
	if !c.SharesLimits() {
		bad.addf("EVERPOST_LANE_ADDRESS", "has no effect with EVERPOST_LANE_LISTEN=off")
	}
	host, port, err := net.SplitHostPort(c.LaneAddress)
	if n, wrong := strconv.ParseUint(port, 10, 16); err != nil || host == "" || wrong != nil || n == 0 {
		bad.addf("EVERPOST_LANE_ADDRESS", "must be host:port, as 10.1.2.3:8082")
	}
}

// RequireCluster checks the settings that every command except standalone requires.
func (c *Config) RequireCluster(keys bool) error {
	var bad refusals
	if c.DatabaseURL == "" {
		bad.addf("EVERPOST_DATABASE_URL", "is required (only 'everpost standalone' brings its own PostgreSQL)")
	}
	if keys && !c.AnyKEK() {
		bad = append(bad, errNoKEK)
	}
	return bad.err()
}

// CheckDatabaseURL checks that the text is a PostgreSQL URL. The error does not repeat it, because it may
// contain a password.
func CheckDatabaseURL(text string) error {
	if u, err := url.Parse(text); err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return errors.New("must be a URL of the form postgres://user:password@host:5432/database")
	}
	return nil
}

// hardToGuess reports whether a key looks generated: long enough, with enough different characters, and
// not a repetition.
func hardToGuess(key string) bool {
	different := map[rune]bool{}
	for _, c := range key {
		different[c] = true
	}
	repeats := strings.Contains((key + key)[1:max(2*len(key)-1, 1)], key)
	return len(key) >= minOperatorKey && len(different) >= minDifferent && !repeats
}

// refusals are the errors of invalid settings.
type refusals []error

func (r *refusals) addf(variable, format string, args ...any) {
	*r = append(*r, fmt.Errorf("%s: %s", variable, fmt.Sprintf(format, args...)))
}

// addListen adds an error for an address that is not valid to listen on.
func (r *refusals) addListen(variable, address string) {
	if err := checkListen(address); err != nil {
		r.addf(variable, "%s", err)
	}
}

// err joins the errors, sorted by text; nil if there are none.
func (r *refusals) err() error {
	slices.SortFunc(*r, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(*r...)
}
