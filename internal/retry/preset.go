package retry

import "time"

// DefaultPreset is the name of the preset that Default returns.
const DefaultPreset = "default"

// DefaultMaxRetryAfter is the MaxRetryAfter of every preset: long enough for a night's maintenance, and
// short enough for several attempts within the give-up time.
const DefaultMaxRetryAfter = 12 * time.Hour

// Preset is a named policy.
type Preset struct {
	Name   string
	Policy Policy
}

// Default returns the policy of an endpoint without its own: exponential from 10 s by 3 up to
// 12 h, equal jitter, 16 attempts within 72 h.
func Default() Policy {
	return exponential(DefaultPreset, 10*time.Second, 3, 12*time.Hour, JitterEqual, 16, 72*time.Hour)
}

// Lookup returns the preset's policy; false if there is no preset of that name.
func Lookup(name string) (Policy, bool) {
	for _, preset := range Presets() {
		if preset.Name == name {
			return preset.Policy, true
		}
	}

	return Policy{}, false
}

// Presets returns all presets, the default first, in new slices.
func Presets() []Preset {
	fullJitter := exponential("full-jitter", 30*time.Second, 2, time.Hour, JitterFull, 5, 72*time.Hour)
	fullJitter.MinDelay = time.Second

	policies := []Policy{
		Default(),
		exponential("exponential-1h", time.Minute, 2, time.Hour, JitterEqual, 16, 72*time.Hour),
		fullJitter,
		steps("steps-90m", 0.2, 72*time.Hour,
			30*time.Second, 2*time.Minute, 10*time.Minute, time.Hour),
		steps("steps-36h", 0.2, 72*time.Hour,
			10*time.Second, 30*time.Second, 2*time.Minute, 10*time.Minute, 30*time.Minute,
			2*time.Hour, 8*time.Hour, 24*time.Hour),
		standardWebhooks(),
		exponential("fast", time.Second, 2, time.Minute, JitterFull, 5, time.Hour),
	}

	presets := make([]Preset, 0, len(policies))
	for _, policy := range policies {
		presets = append(presets, Preset{Name: policy.Preset, Policy: policy})
	}

	return presets
}

// DefaultAmbiguousDelays are the delays of every preset. A deployment finishes within minutes,
// and a missing route or credential is usually repaired within hours. After a day and a half of
// 404 responses only, a repair is unlikely.
func DefaultAmbiguousDelays() []time.Duration {
	return []time.Duration{time.Minute, 15 * time.Minute, 2 * time.Hour, 12 * time.Hour, 24 * time.Hour}
}

// standardWebhooks follows the example schedule of the Standard Webhooks specification,
// "Deliverability and reliability", and its rules for statuses: only 2xx is success, and only
// 410 ends the deliveries. Every other status that a policy may override is retried. (3xx is
// never followed and cannot be overridden.)
func standardWebhooks() Policy {
	policy := steps("standard-webhooks", 0.1, 84*time.Hour,
		5*time.Second, 5*time.Minute, 30*time.Minute, 2*time.Hour, 5*time.Hour,
		10*time.Hour, 14*time.Hour, 20*time.Hour, 24*time.Hour)
	for status := 400; status <= 499; status++ {
		outcome := classifyStatus(status)
		if (outcome.Decision != Retry || outcome.Ambiguous) && !outcome.DisableEndpoint {
			policy.RetryStatuses = append(policy.RetryStatuses, status)
		}
	}

	return policy
}

func exponential(
	name string, base time.Duration, factor float64, limit time.Duration, jitter Jitter,
	attempts int, giveUp time.Duration,
) Policy {
	return Policy{
		Preset: name, Strategy: StrategyExponential, Base: base, Factor: factor, Cap: limit, Jitter: jitter,
		MaxAttempts: attempts, AmbiguousDelays: DefaultAmbiguousDelays(), GiveUpAfter: giveUp, MaxRetryAfter: DefaultMaxRetryAfter,
	}
}

// steps makes a schedule policy; it has one attempt more than delays.
func steps(name string, ratio float64, giveUp time.Duration, schedule ...time.Duration) Policy {
	return Policy{
		Preset: name, Strategy: StrategySchedule, Schedule: schedule, Jitter: JitterProportional, JitterRatio: ratio,
		MaxAttempts: len(schedule) + 1, AmbiguousDelays: DefaultAmbiguousDelays(), GiveUpAfter: giveUp, MaxRetryAfter: DefaultMaxRetryAfter,
	}
}
