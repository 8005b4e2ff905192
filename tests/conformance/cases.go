package conformance

import "slices"

// cases is the suite, by topic.
var cases = slices.Concat(
	dataCases(), atomicCases(), sglCases(), signalCases(), keyCases(), accessCases(), retryCases(),
	flushCases(), orderCases(), stateCases(), ucCases(), udCases(), mcastCases(), srqCases(),
	xrcCases(), windowCases(), windowType2Cases(), invalidateCases(), reregCases(),
	cqCases(), cqEventCases(), cqWaitCases(), asyncCases(), lifetimeCases(), limitCases(), multiCases(),
	cmCases(),
)
