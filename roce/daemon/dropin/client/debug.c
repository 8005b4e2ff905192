/* GOROCE_DEBUG=1 prints what the daemon says; GOROCE_QUIET silences what is printed without it. */
#include "client.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* set reports whether a variable is set. It is looked up each time: programs may set it when they run. */
static bool set(const char *name)
{
	const char *value = getenv(name);

	return value && *value && strcmp(value, "0") != 0;
}

bool debugging(void) { return set("GOROCE_DEBUG"); }

/* debug prints a line, in one call, so that those of several threads stay whole. It may change errno. */
void debug(const char *format, ...)
{
	char line[1024];
	va_list args;

	if (!debugging())
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	fprintf(stderr, "goroce: %s\n", line);
}

bool quiet(void) { return set("GOROCE_QUIET"); }
