package webhook

import "time"

// EndpointFailures is what one process has seen of an endpoint and not stored yet: a
// success, failures, or a success and the failures after it.
type EndpointFailures struct {
	EndpointID EndpointID
	Succeeded  time.Time // the last success; zero: none. Everything below came after it

	Permanent int       // deliveries that the receiver refused permanently
	Exhausted int       // deliveries that ran out of attempts or time
	First     time.Time // when the first of these failures ended
	Last      time.Time // … and the last
	Began     time.Time // when the request of the last one was made
	Reason    string    // of the attempt of the last one: "http_404"
	Gone      time.Time // when a request was made that was answered 410; zero: none
}

// Failed reports whether there is anything but a success.
func (f *EndpointFailures) Failed() bool {
	return f.Permanent > 0 || f.Exhausted > 0 || !f.Gone.IsZero()
}

// Add appends what was seen later.
func (f *EndpointFailures) Add(later EndpointFailures) {
	gone := f.Gone
	switch {
	case !later.Succeeded.IsZero():
		*f = later
	case f.Permanent+f.Exhausted == 0:
		later.Succeeded = f.Succeeded
		*f = later
	default:
		f.Permanent += later.Permanent
		f.Exhausted += later.Exhausted
		f.Gone = later.Gone
		if later.Permanent+later.Exhausted > 0 {
			f.Last, f.Began, f.Reason = later.Last, later.Began, later.Reason
		}
	}
	if f.Gone.IsZero() {
		f.Gone = gone // one 410 is enough, whatever else succeeds
	}
}

// FailingEndpoint is an active endpoint with stored failures.
type FailingEndpoint struct {
	EndpointID EndpointID
	TenantID   string
	Since      time.Time // of the first failure
	Disable    bool      // the failures are enough to disable the endpoint
}
