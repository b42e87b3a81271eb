// Names for the tests, which are in a package of their own.

package encryption

var SealedPlaces = sealedPlaces
