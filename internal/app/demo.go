package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/signature"
	"github.com/everpost/everpost/internal/webhook"
)

// DemoTenant is the tenant of the demonstration.
const DemoTenant = "demo"

// DemoExists reports whether the demonstration's tenant is in the database.
func DemoExists(ctx context.Context, c config.Config, logger *slog.Logger) (bool, error) {
	store, err := stores.Open(ctx, stores.Config{URL: c.DatabaseURL, MaxConns: 2, Logger: logger})
	if err != nil {
		return false, err
	}
	defer store.Close()
	_, err = store.Tenants.Tenant(ctx, DemoTenant)
	if webhook.CodeOf(err) == webhook.CodeNotFound {
		return false, nil
	}
	return err == nil, err
}

// SetUpDemo creates the demonstration's tenant with one endpoint at url. If the tenant
// exists, it sets the URL of its endpoint. It returns the endpoint and its secret. The
// URL is not checked: it is that of Options.Exempt.
func (a *App) SetUpDemo(ctx context.Context, url string) (e webhook.Endpoint, secret string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("set up the demonstration: %w", err)
		}
	}()
	by := webhook.Actor{Name: "demonstration"}
	if _, _, err := a.store.Tenants.PutTenant(ctx, by, webhook.Tenant{ID: DemoTenant, Name: "Demonstration"}); err != nil {
		return webhook.Endpoint{}, "", err
	}
	found, err := a.store.Endpoints.ListEndpoints(ctx, DemoTenant, webhook.Page{Limit: 1})
	if err != nil {
		return webhook.Endpoint{}, "", err
	}
	if len(found) == 1 {
		e, err = a.store.Endpoints.UpdateEndpoint(ctx, by, DemoTenant, found[0].ID, func(e *webhook.Endpoint) error {
			if !webhook.SameOrigin(e.URL, url) { // stored credentials do not follow a changed URL, here neither
				e.Headers, e.Auth, e.Certificate = nil, webhook.Auth{}, webhook.ClientCertificate{}
			}
			e.URL = url
			return nil
		})
	} else {
		e, err = createDemoEndpoint(ctx, a.store, by, url)
	}
	if err != nil {
		return webhook.Endpoint{}, "", err
	}
	secret, err = a.store.Endpoints.EndpointSecret(ctx, by, DemoTenant, e.ID)
	return e, secret, err
}

func createDemoEndpoint(ctx context.Context, store *stores.DB, by webhook.Actor, url string) (webhook.Endpoint, error) {
	secret, err := signature.GenerateHMAC(rand.Reader)
	if err != nil {
		return webhook.Endpoint{}, fmt.Errorf("make a secret: %w", err)
	}
	fast, _ := retry.Lookup("fast") // first delay at most 1 s, so that the receiver's Retry-After decides
	return store.Endpoints.CreateEndpoint(ctx, by, webhook.Endpoint{
		ID: webhook.NewEndpointID(), TenantID: DemoTenant, URL: url, EventTypes: []string{"*"}, Description: "the receiver inside the standalone process",
		Timeout: webhook.DefaultTimeout, MaxInFlight: webhook.DefaultMaxInFlight, RateLimit: webhook.DefaultRateLimit, RetryPolicy: fast,
		CircuitBreaker: webhook.DefaultCircuitBreaker(), AutoDisable: webhook.DefaultAutoDisable(), Signature: webhook.SignatureV1,
	}, secret.Reveal())
}
