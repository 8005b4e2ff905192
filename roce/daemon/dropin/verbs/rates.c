/* ibv_rate, as multiples of 2.5 Gb/s and in Mb/s (IBTA 9.11, PathRecord.Rate). */
#include "lib.h"

static const struct {
	int rate, mult, mbps; /* mult -1: no such multiple is named */
} rates[] = {
	{2, 1, 2500},      {5, 2, 5000},      {3, 4, 10000},     {6, 8, 20000},     {4, 12, 30000},    {7, 16, 40000},
	{8, 24, 60000},    {9, 32, 80000},    {10, 48, 120000},  {11, -1, 14062},   {12, -1, 56250},   {13, -1, 112500},
	{14, -1, 168750},  {15, -1, 25781},   {16, -1, 103125},  {17, -1, 206250},  {18, -1, 309375},  {19, 11, 28125},
	{20, 20, 53125},   {21, 160, 425000}, {22, 240, 637500}, {23, 320, 850000}, {24, 480, 1275000},
};

#define EACH_RATE(i) for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++)

EXPORT int ibv_rate_to_mult(int rate)
{
	EACH_RATE(i)
		if (rates[i].rate == rate)
			return rates[i].mult;
	return -1;
}

EXPORT int mult_to_ibv_rate(int mult)
{
	EACH_RATE(i)
		if (mult > 0 && rates[i].mult == mult)
			return rates[i].rate;
	return 0;
}

EXPORT int ibv_rate_to_mbps(int rate)
{
	EACH_RATE(i)
		if (rates[i].rate == rate)
			return rates[i].mbps;
	return -1;
}

EXPORT int mbps_to_ibv_rate(int mbps)
{
	EACH_RATE(i)
		if (rates[i].mbps == mbps)
			return rates[i].rate;
	return 0;
}
