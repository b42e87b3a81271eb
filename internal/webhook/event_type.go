package webhook

import "time"

// Limits of the catalogue of event types. docs/event-types.md documents them.
const (
	MaxCatalogueTypes       = 1000 // of an installation
	MaxEventTypeVersions    = 10   // of a type
	MaxEventTypeVersion     = 32767
	MaxEventTypeExamples    = 5        // of a version
	MaxEventTypeExample     = 16 << 10 // bytes
	MaxEventTypeSize        = 1 << 20  // bytes of all schemas and examples of a type
	MaxEventTypeDescription = 2000     // characters
	MaxEventTypeGroup       = 64       // characters
	MaxOrderingPointer      = 256      // bytes
)

// EventType is an entry of the catalogue of event types. The catalogue belongs to the installation.
type EventType struct {
	Name        string
	Description string
	Group       string // "" for none
	State       EventTypeState
	ReplacedBy  string // another type; "" for none
	Validation  Validation
	OrderingKey string             // where in a payload the key is whose events are ordered: a JSON pointer (RFC 6901); "" for none
	Versions    []EventTypeVersion // by their numbers
	Revision    int64              // increases with every change; 0: not stored yet
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// EventTypeVersion is a version of the payload of an event type. The one with the highest number is the newest.
type EventTypeVersion struct {
	Version  int
	Schema   []byte   // JSON Schema; nil for none
	Examples [][]byte // payloads
}

// Version returns a version by its number; the newest for 0. It is nil if there is none.
func (t *EventType) Version(number int) *EventTypeVersion {
	if number == 0 && len(t.Versions) > 0 {
		return &t.Versions[len(t.Versions)-1]
	}
	for i := range t.Versions {
		if t.Versions[i].Version == number {
			return &t.Versions[i]
		}
	}
	return nil
}

// RevisionMatch is the revision that a stored object must have for a change, as the headers If-Match and If-None-Match say it.
type RevisionMatch int64

// Special revisions.
const (
	MatchAny      RevisionMatch = 0  // whatever is stored, or nothing
	MatchExisting RevisionMatch = -1 // any revision, but there must be one
	MatchNothing  RevisionMatch = -2 // nothing may be stored: the change creates
)

// Check returns CodeChanged unless the stored revision, 0 for none, is as it must be. noun names the object.
func (m RevisionMatch) Check(stored int64, noun string) error {
	switch {
	case m == MatchAny, m == RevisionMatch(stored) && stored != 0, m == MatchExisting && stored != 0, m == MatchNothing && stored == 0:
		return nil
	case m == MatchNothing:
		return &Error{Code: CodeChanged, Message: "the " + noun + " exists already"}
	case stored == 0:
		return &Error{Code: CodeChanged, Message: "the " + noun + " does not exist"}
	}
	return &Error{Code: CodeChanged, Message: "the " + noun + " was changed since it was read: read it again, and send its present ETag as If-Match"}
}

// EventTypeFilter selects event types. What is zero is not compared.
type EventTypeFilter struct {
	Group  string
	Prefix string          // of the name
	State  *EventTypeState // nil: all
}

// EventTypeState is where a type is in its life. The numbers are stored.
type EventTypeState uint8

// The states.
const (
	EventTypeActive     EventTypeState = iota
	EventTypeDeprecated                // still posted; shown as such
	EventTypeArchived                  // not posted any more: refused where only known types are allowed
)

// EventTypeStates are all states.
func EventTypeStates() []EventTypeState {
	return []EventTypeState{EventTypeActive, EventTypeDeprecated, EventTypeArchived}
}

// String is the state's name in the API.
func (s EventTypeState) String() string {
	switch s {
	case EventTypeActive:
		return "active"
	case EventTypeDeprecated:
		return "deprecated"
	case EventTypeArchived:
		return "archived"
	}
	return "active"
}

// Validation is what becomes of an event whose payload does not match the schema of its type. The numbers are stored.
type Validation uint8

// The kinds of validation.
const (
	ValidationOff     Validation = iota // payloads are not looked at
	ValidationWarn                      // it is stored, with what does not match
	ValidationEnforce                   // it is refused
)

// Validations are all kinds.
func Validations() []Validation {
	return []Validation{ValidationOff, ValidationWarn, ValidationEnforce}
}

// String is the kind's name in the API.
func (v Validation) String() string {
	switch v {
	case ValidationOff:
		return "off"
	case ValidationWarn:
		return "warn"
	case ValidationEnforce:
		return "enforce"
	}
	return "off"
}

// ImportedType is an event type of a document.
type ImportedType struct {
	Name        string
	Description string
	Group       string
	Deprecated  *bool  // false: active; nil: as it is
	Schema      []byte // nil: none
	Examples    [][]byte
}

// TypeImport are event types for the catalogue. A type whose newest schema is another gets a new version.
type TypeImport struct {
	Types      []ImportedType
	ReplaceAll bool // archives the other types of the catalogue
	DryRun     bool // changes nothing
}

// ImportedChange is what an import does to an event type.
type ImportedChange struct {
	Name    string
	Change  string            // ImportCreated and so on
	Version int               // the newest one; 0: none
	Schema  []byte            // of it
	Before  *EventTypeVersion // the newest one before; nil: none, or it is the same
}

// What an import does to an event type.
const (
	ImportCreated   = "created"
	ImportUpdated   = "updated"
	ImportUnchanged = "unchanged"
	ImportArchived  = "archived"
)

// TypeVerdict is what the catalogue has to say of an event. The zero verdict is nothing.
type TypeVerdict struct {
	// Refused are the fields for which the event is refused, relative to the event; none if it is not.
	Refused []FieldError
	// Payload says that the payload does not match, and nothing else is wrong.
	Payload bool
	// SchemaError is the first mismatch of an event that is stored all the same; "" for none. It has nothing of the payload.
	SchemaError string
	// OrderingPointer is where the ordering key of such an event is in its payload: a JSON pointer; "" for nowhere.
	OrderingPointer string
}
