// What the tests look into.

package encryption

var SealedPlaces = sealedPlaces
