package console

// routes has all pages, and where their forms are sent to.
func routes() []route { //nolint:funlen // a table
	const (
		get, post = "GET ", "POST "

		tenant      = "/t/{tenant}"
		endpoints   = tenant + "/endpoints"
		endpoint    = endpoints + "/{id}"
		events      = tenant + "/events"
		event       = events + "/{id}"
		deliveries  = tenant + "/deliveries"
		delivery    = deliveries + "/{id}"
		deadLetters = tenant + "/dead-letters"
		replays     = tenant + "/replays"
		replay      = replays + "/{id}"
		keys        = tenant + "/keys"
		key         = keys + "/{id}"
		channels    = "/notifications"
		channel     = channels + "/{id}"
		eventTypes  = "/event-types"
		eventType   = eventTypes + "/{name}"
		version     = eventType + "/versions/{version}"
	)
	return []route{
		{pattern: get + "/{$}", handle: home},
		{pattern: get + "/search", access: operators, handle: searchAll},
		{pattern: get + "/switch", access: operators, handle: switchTenant},
		{pattern: get + "/switch/suggestions", access: operators, handle: suggestTenants},
		{pattern: get + "/login", access: public, handle: showLogIn},
		{pattern: post + "/login", access: public, handle: logIn},
		{pattern: post + "/logout", handle: logOut},
		{pattern: get + "/links/{token}", access: public, handle: showLink},
		{pattern: post + "/links/{token}", access: public, handle: useLink},

		{pattern: get + tenant + "/{$}", handle: overview},
		{pattern: get + tenant + "/search", handle: showSearch},
		{pattern: get + tenant + "/search/suggestions", handle: suggest},
		{pattern: get + tenant + "/retry-policies", handle: showPolicies},

		{pattern: get + endpoints, handle: listEndpoints},
		{pattern: get + endpoints + "/new", handle: newEndpoint},
		{pattern: post + endpoints + "/new", handle: createEndpoint},
		{pattern: get + endpoint, handle: showEndpoint},
		{pattern: get + endpoint + "/edit", handle: editEndpoint},
		{pattern: post + endpoint + "/edit", handle: updateEndpoint},
		{pattern: get + endpoint + "/rotate-secret", handle: askRotate},
		{pattern: post + endpoint + "/rotate-secret", handle: rotateSecret},
		{pattern: get + endpoint + "/pause", handle: askPause},
		{pattern: post + endpoint + "/pause", handle: pauseEndpoint},
		{pattern: get + endpoint + "/resume", handle: askResume},
		{pattern: post + endpoint + "/resume", handle: resumeEndpoint},
		{pattern: post + endpoint + "/release/stop", handle: stopRelease},
		{pattern: post + endpoint + "/release/continue", handle: continueRelease},
		{pattern: post + endpoint + "/release/rate", handle: setReleaseRate},
		{pattern: get + endpoint + "/close-circuit", handle: askCloseCircuit},
		{pattern: post + endpoint + "/close-circuit", handle: closeCircuit},
		{pattern: get + endpoint + "/filter", handle: editFilter},
		{pattern: post + endpoint + "/filter", handle: editFilter, big: true},
		{pattern: post + endpoint + "/filter/save", handle: saveFilter, big: true},
		{pattern: get + endpoint + "/test", handle: askTest},
		{pattern: post + endpoint + "/test", handle: testEndpoint, slow: true, big: true},
		{pattern: get + endpoint + "/delete", handle: askDeleteEndpoint},
		{pattern: post + endpoint + "/delete", handle: deleteEndpoint},

		{pattern: get + events, handle: listEvents},
		{pattern: get + events + "/new", handle: newEvent},
		{pattern: post + events + "/new", handle: sendEvent, big: true},
		{pattern: get + event, handle: showEvent},
		{pattern: get + event + "/payload", handle: showPayload},

		{pattern: get + deliveries, handle: listDeliveries},
		{pattern: post + deliveries + "/selected", handle: changeSelected(selectedDeliveries())},
		{pattern: get + deliveries + "/all/cancel", handle: askMatching(selectedDeliveries(), commandCancel)},
		{pattern: post + deliveries + "/all/cancel", handle: changeMatching(selectedDeliveries(), commandCancel), slow: true},
		{pattern: get + deliveries + "/all/retry", handle: askMatching(selectedDeliveries(), commandRetry)},
		{pattern: post + deliveries + "/all/retry", handle: changeMatching(selectedDeliveries(), commandRetry), slow: true},
		{pattern: get + delivery, handle: showDelivery},
		{pattern: post + delivery + "/retry", handle: retryDelivery},
		{pattern: get + delivery + "/cancel", handle: askCommand(commandCancel)},
		{pattern: post + delivery + "/cancel", handle: sendCommand(commandCancel)},
		{pattern: get + delivery + "/replay", handle: askCommand(commandReplay)},
		{pattern: post + delivery + "/replay", handle: sendCommand(commandReplay)},
		{pattern: get + delivery + "/discard", handle: askCommand(commandDiscard)},
		{pattern: post + delivery + "/discard", handle: sendCommand(commandDiscard)},
		{pattern: get + delivery + "/reschedule", handle: askReschedule},
		{pattern: post + delivery + "/reschedule", handle: reschedule},

		{pattern: get + deadLetters, handle: showDeadLetters},
		{pattern: post + deadLetters + "/selected", handle: changeSelected(selectedLetters())},
		{pattern: get + deadLetters + "/discard", handle: askMatching(selectedLetters(), commandDiscard)},
		{pattern: post + deadLetters + "/discard", handle: changeMatching(selectedLetters(), commandDiscard), slow: true},

		{pattern: get + replays, handle: listReplays},
		{pattern: get + replays + "/new", handle: showNewReplay},
		{pattern: post + replays, handle: createReplay},
		{pattern: get + replay, handle: showReplay},
		{pattern: post + replay + "/{command}", handle: changeReplay},
		{pattern: get + replay + "/cancel", handle: askCancelReplay},

		{pattern: get + keys, handle: listKeys},
		{pattern: post + keys, handle: createKey},
		{pattern: get + key + "/revoke", handle: askRevokeKey},
		{pattern: post + key + "/revoke", handle: revokeKey},

		{pattern: get + tenant + channels, handle: listChannels},
		{pattern: post + tenant + channels, handle: changePortalURL},
		{pattern: get + tenant + channels + "/new", handle: askChannel},
		{pattern: post + tenant + channels + "/new", handle: addChannel},
		{pattern: get + tenant + channel, handle: editChannel},
		{pattern: post + tenant + channel, handle: changeChannel},
		{pattern: post + tenant + channel + "/confirm", handle: confirmAgain},
		{pattern: get + tenant + channel + "/remove", handle: askRemoveChannel},
		{pattern: post + tenant + channel + "/remove", handle: removeChannel},

		{pattern: get + channels, access: operators, handle: listChannels},
		{pattern: post + channels, access: operators, handle: changePortalURL},
		{pattern: get + channels + "/new", access: operators, handle: askChannel},
		{pattern: post + channels + "/new", access: operators, handle: addChannel},
		{pattern: get + channel, access: operators, handle: editChannel},
		{pattern: post + channel, access: operators, handle: changeChannel},
		{pattern: post + channel + "/confirm", access: operators, handle: confirmAgain},
		{pattern: get + channel + "/remove", access: operators, handle: askRemoveChannel},
		{pattern: post + channel + "/remove", access: operators, handle: removeChannel},

		{pattern: get + eventTypes, handle: listEventTypes},
		{pattern: get + eventTypes + "-export", handle: exportEventTypes},
		{pattern: get + eventTypes + "-import", access: operators, handle: askImport},
		{pattern: post + eventTypes + "-import", access: operators, handle: importEventTypes, big: true},
		{pattern: get + eventTypes + "-new", access: operators, handle: newEventType},
		{pattern: post + eventTypes + "-new", access: operators, handle: createEventType, big: true},
		{pattern: get + eventType, handle: showEventType},
		{pattern: get + eventType + "/edit", access: operators, handle: editEventType},
		{pattern: post + eventType + "/edit", access: operators, handle: updateEventType},
		{pattern: get + version, access: operators, handle: editVersion},
		{pattern: post + version, access: operators, handle: saveVersion, big: true},
		{pattern: get + eventType + "/delete", access: operators, handle: askDeleteEventType},
		{pattern: post + eventType + "/delete", access: operators, handle: deleteEventType},

		{pattern: get + "/tenants", access: operators, handle: listTenants},
		{pattern: post + "/tenants", access: operators, handle: createTenant},
		{pattern: get + "/tenants/{tenant}", access: operators, handle: showTenant},
		{pattern: post + "/tenants/{tenant}", access: operators, handle: changeTenant},
		{pattern: get + "/tenants/{tenant}/delete", access: operators, handle: askDeleteTenant},
		{pattern: post + "/tenants/{tenant}/delete", access: operators, handle: deleteTenant},
		{pattern: get + "/audit", access: operators, handle: showAudit},
		{pattern: get + "/doctor", access: operators, handle: showDoctor, slow: true},
	}
}
