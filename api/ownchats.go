package api

import "github.com/everpost/everpost/internal/webhook"

// ownChats leaves what is sent to a tenant's own chats out of its lists, unless the filter asks for it: those endpoints are not shown either. The
// page ends there, and the next one goes on, because no index tells them apart.
type ownChats struct{ shown bool }

// chatsIn returns what a list with this filter of event types shows; "" for none.
func chatsIn(filter string) ownChats {
	return ownChats{shown: filter != "" && webhook.FilterMatches(filter, webhook.NotificationType)}
}

// without returns the entries of a batch that are shown, and where the list goes on if others follow. limit is how many were asked for.
func without[T any](o ownChats, found []T, limit int, searched string, typeOf, position func(T) string) (kept []T, goesOn string) {
	if o.shown {
		return found, searched
	}
	for _, one := range found {
		if typeOf(one) != webhook.NotificationType {
			kept = append(kept, one)
		}
	}
	if len(kept) < len(found) && len(found) == limit {
		searched = position(found[len(found)-1])
	}
	return kept, searched
}
