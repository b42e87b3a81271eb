// Package helm holds the chart of Everpost for Kubernetes. Its tests render it with Helm's own engine and decode what comes out
// strictly. It is a module of its own: Helm brings more than a hundred others.
package helm
