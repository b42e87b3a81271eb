// Package webhook is the domain: tenants, events, endpoints, deliveries and
// attempts, their ids and states, and the rules that need no storage and no
// network. It imports only package retry.
package webhook
