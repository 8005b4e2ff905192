/* Prints what libibverbs says of values. */
#include <infiniband/verbs.h>
#include <stdio.h>

int main(void)
{
	for (int i = -2; i < 40; i++) {
		printf("%d: rate %d %d, ", i, ibv_rate_to_mult(i), ibv_rate_to_mbps(i));
		printf("%s, %s, ", ibv_node_type_str(i), ibv_port_state_str(i));
		printf("%s, %s\n", ibv_event_type_str(i), ibv_wc_status_str(i));
	}
	for (int i = -1; i < 500; i++)
		printf("mult %d: %d\n", i, (int)mult_to_ibv_rate(i));
	for (int i = 0; i < 1300000; i++) {
		if (mbps_to_ibv_rate(i))
			printf("mbps %d: %d\n", i, (int)mbps_to_ibv_rate(i));
	}
	return 0;
}
