// Package webhook is the domain: tenants, events, endpoints, deliveries and
// attempts, their ids and states, and the rules that need no storage and no
// network. It imports only the retry policy, and everything else imports it.
package webhook
