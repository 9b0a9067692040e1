//go:build race

package overload

// raceDetector is set if the test runs under the race detector.
const raceDetector = true
