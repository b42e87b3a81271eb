package api

// handlers are the handlers of all operations.
type handlers struct {
	documents  documentHandler
	audit      auditHandler
	statistics statisticsHandler
	attention  attentionHandler

	tenants tenantHandler
	exports exportHandler
	keys    keyHandler

	notifications notificationHandler

	endpoints  endpointHandler
	switches   switchHandler
	releases   releaseHandler
	circuits   circuitHandler
	conditions conditionHandler
	health     healthHandler
	tests      endpointTestHandler
	secrets    secretHandler

	events     eventHandler
	filters    filterHandler
	erasures   erasureHandler
	deliveries deliveryHandler
	commands   commandHandler
	replays    replayHandler

	types    eventTypeHandler
	imports  eventTypeImportHandler
	links    linkHandler
	policies policyHandler
}

// newHandlers makes the handlers. The page of the documentation has the operations in the order of all.
func newHandlers(c *Config, auth *authenticator, all []route) *handlers {
	urls := &workflowURLs{url: c.WorkflowURL, forTenants: c.WorkflowURLForTenants, kept: c.WorkflowsKept, now: c.Now}
	explained := &explanations{
		situations: c.Situations, engine: c.Engine, deliveries: c.Deliveries, erasures: c.Erasures,
		deadLettersKept: c.DeadLettersKept, workflowsKept: c.WorkflowsKept, now: c.Now, log: c.Logger,
	}
	warnings := filterWarnings{types: c.EventTypes, log: c.Logger}
	conditions := newConditionReader(c.Situations, c.Now)
	views := &deliveryViews{explanations: explained, events: c.Events, workflowURLs: urls}
	return &handlers{
		documents:  newDocumentHandler(c, all),
		audit:      auditHandler{c.Audit},
		statistics: statisticsHandler{statistics: c.Statistics, tenants: c.Tenants, now: c.Now},
		attention:  attentionHandler{reader: newAttentionReader(c.Logger, c.Attention, conditions), tenants: c.Tenants},

		tenants: tenantHandler{tenants: c.Tenants, updates: c.TenantUpdates, deletions: c.TenantDeletions, retention: c.Retention, now: c.Now},
		exports: exportHandler{
			exports: c.Exports, endpoints: c.Endpoints, keys: c.Keys, events: c.Events, deliveries: c.Deliveries, replays: c.Replays, audit: c.Audit,
			views: views, workflowURLs: urls, now: c.Now, log: c.Logger,
		},
		keys: keyHandler{keys: c.Keys, tenants: c.Tenants, now: c.Now},

		notifications: notificationHandler{notifications: c.Notifications, urls: c.URLs, mail: c.SendsMail},

		endpoints: endpointHandler{
			endpoints: c.Endpoints, secrets: c.EndpointSecrets, tenants: c.Tenants, situations: c.Situations,
			fields: endpointFields{urls: c.URLs, now: c.Now}, warnings: warnings, now: c.Now, log: c.Logger,
		},
		switches:   switchHandler{c.EndpointSwitch},
		releases:   releaseHandler{c.Releases},
		circuits:   circuitHandler{circuits: c.Circuits, endpoints: c.Endpoints, starter: c.Starter},
		conditions: conditionHandler{reader: conditions, tenants: c.Tenants},
		health:     healthHandler{health: c.Health, now: c.Now},
		tests:      endpointTestHandler{tests: c.Tests, maxPayload: c.MaxPayload},
		secrets:    secretHandler{c.EndpointSecrets},

		events: eventHandler{
			events: c.Events, tenants: c.Tenants, starter: c.Starter, explanations: explained, maxPayload: c.MaxPayload, now: c.Now,
		},
		filters: filterHandler{
			events: c.Events, endpoints: c.Endpoints, tenants: c.Tenants, warnings: warnings, maxPayload: c.MaxPayload, work: matchWork,
		},
		erasures: erasureHandler{erasures: c.Erasures, tenants: c.Tenants, starter: c.Starter},
		deliveries: deliveryHandler{
			deliveries: c.Deliveries, groups: c.DeadLetterGroups, endpoints: c.Endpoints, events: c.Events, tenants: c.Tenants, views: views,
		},
		commands: commandHandler{deliveries: c.Deliveries, circuits: c.Circuits, starter: c.Starter, views: views, now: c.Now},
		replays:  replayHandler{replays: c.Replays, counts: c.ReplayCounts, tenants: c.Tenants, starter: c.Starter, workflowURLs: urls},

		imports:  eventTypeImportHandler{c.EventTypeImports},
		types:    eventTypeHandler{types: c.EventTypes, changes: c.EventTypeChanges},
		links:    linkHandler{links: c.ConsoleLinks, auth: auth, proxies: c.TrustedProxies, url: c.ConsoleURL, now: c.Now},
		policies: policyHandler{tenants: c.Tenants, installation: c.RetryPolicy},
	}
}
