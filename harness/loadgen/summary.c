/* SPDX-License-Identifier: Apache-2.0 */
#include "summary.h"

#include "clock.h"
#include "fail.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

/* Beyond either, a latency says as much about the generator as about the server. */
#define LAG_LIMIT_NS (100 * NS_PER_US)
#define LAG_LIMIT_OF_LATENCY 0.01

static int compare(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

/* By nearest rank: each is a value that was measured. */
static uint64_t quantile(const uint64_t *sorted, uint64_t samples, double p)
{
	return sorted[(uint64_t)ceil(p * (double)samples - 1e-9) - 1];
}

struct quantiles quantiles_of(uint64_t *values, uint64_t samples)
{
	if (samples == 0)
		return (struct quantiles){0};
	qsort(values, samples, sizeof(*values), compare);
	return (struct quantiles){
	    .samples = samples,
	    .p50 = quantile(values, samples, 0.50),
	    .p99 = quantile(values, samples, 0.99),
	    .p999 = quantile(values, samples, 0.999),
	    .max = values[samples - 1],
	};
}

static bool was_sent(const struct query_record *record)
{
	return record->sent_after != DELTA_NEVER;
}

static bool is_ok(const struct query_record *record)
{
	return record->status == QUERY_OK;
}

static bool was_answered(const struct query_record *record)
{
	return record->status == QUERY_OK || record->status == QUERY_ERROR;
}

/* The generator's own delay; what a full socket held up is the server's. */
static uint64_t lag(const struct query_record *record)
{
	return record->sent_after - record_held(record);
}

static uint64_t completed_after(const struct query_record *record)
{
	return record->completed_after;
}

static struct quantiles quantiles_over(const struct query_log *log, uint64_t *values,
				       bool (*counts)(const struct query_record *),
				       uint64_t (*value)(const struct query_record *))
{
	uint64_t samples = 0;

	for (uint64_t i = 0; i < log->count; i++)
		if (counts(&log->records[i]))
			values[samples++] = value(&log->records[i]);
	return quantiles_of(values, samples);
}

/*
 * Queries a second from the schedule's origin to the last of these times, where each query stands
 * for the interval that follows it.
 */
static double rate_until(const struct traffic *t, uint64_t queries, uint64_t last, double rate)
{
	return (double)queries / ((double)(last - t->origin) / (double)NS_PER_S + 1 / rate);
}

static uint64_t last_intended(const struct traffic *t)
{
	return t->log->count ? t->log->records[t->log->count - 1].intended : t->origin;
}

static uint64_t last_sent(const struct traffic *t)
{
	uint64_t last = last_intended(t);

	for (uint64_t i = 0; i < t->log->count; i++) {
		const struct query_record *record = &t->log->records[i];
		uint64_t time = record->intended + (was_sent(record) ? record->sent_after : 0);

		if (time > last)
			last = time;
	}
	return last;
}

/* A record is in order and holds times that fit its status, or the log is false. */
static bool record_is_sound(const struct traffic *t, uint64_t sequence)
{
	const struct query_record *record = &t->log->records[sequence];
	bool answered = was_answered(record);

	if (sequence > 0 && record->intended < record[-1].intended)
		return false;
	if (was_sent(record) != (record->status != QUERY_UNSENT))
		return false;
	if (answered != (record->completed_after != DELTA_NEVER))
		return false;
	if (was_sent(record) && record_held(record) > record->sent_after)
		return false;
	return !answered || record->sent_after <= record->completed_after;
}

static bool is_conserved(const struct traffic *t, const struct summary *summary)
{
	const struct traffic_counts *counts = &summary->counts;
	uint64_t by_status[QUERY_UNSENT + 1] = {0};

	if (t->log->count != counts->intended)
		return false;
	for (uint64_t i = 0; i < t->log->count; i++) {
		if (!record_is_sound(t, i))
			return false;
		by_status[t->log->records[i].status]++;
	}
	return by_status[QUERY_OK] == counts->completed &&
	       by_status[QUERY_ERROR] == counts->errors && by_status[QUERY_LOST] == counts->lost &&
	       by_status[QUERY_IN_FLIGHT] == summary->in_flight &&
	       by_status[QUERY_UNSENT] == summary->unsent &&
	       counts->intended == counts->sent + summary->unsent &&
	       counts->sent ==
		   counts->completed + counts->errors + counts->lost + summary->in_flight;
}

static bool is_late(const struct summary *summary)
{
	double limit = LAG_LIMIT_OF_LATENCY * (double)summary->latency.p999;

	return summary->lag.p999 > LAG_LIMIT_NS ||
	       (summary->latency.samples && (double)summary->lag.p999 > limit);
}

struct summary summary_of(const struct traffic *t, double rate)
{
	struct summary summary = {
	    .counts = t->counts,
	    .in_flight = traffic_in_flight(t),
	    .unsent = traffic_unsent(t),
	    .start = t->origin,
	    .rate_wanted = rate,
	    .rate_intended = rate_until(t, t->log->count, last_intended(t), rate),
	    .rate_sent = rate_until(t, t->counts.sent, last_sent(t), rate),
	    .stamp_error = t->clock.error,
	    .clock_steps = t->clock.steps,
	    .server_gone = t->alive == 0,
	};

	for (uint64_t i = 0; i < t->log->count; i++) {
		const struct query_record *record = &t->log->records[i];

		summary.held += record_held(record) > 0;
		summary.unstamped += was_answered(record) && !record->stamped;
	}

	uint64_t *values = malloc((t->log->count + 1) * sizeof(*values));

	if (!values)
		fail(EXIT_ENVIRONMENT, "no memory to sort %" PRIu64 " latencies", t->log->count);
	summary.lag = quantiles_over(t->log, values, was_sent, lag);
	summary.read_delay = quantiles_over(t->log, values, was_answered, record_read_delay);
	summary.latency = quantiles_over(t->log, values, is_ok, completed_after);
	free(values);

	summary.late = is_late(&summary);
	summary.conserved = is_conserved(t, &summary);
	return summary;
}

static struct timeval time_between(struct timeval before, struct timeval after)
{
	struct timeval difference;

	timersub(&after, &before, &difference);
	return difference;
}

struct rusage cost_between(const struct rusage *before, const struct rusage *after)
{
	return (struct rusage){
	    .ru_utime = time_between(before->ru_utime, after->ru_utime),
	    .ru_stime = time_between(before->ru_stime, after->ru_stime),
	    .ru_minflt = after->ru_minflt - before->ru_minflt,
	    .ru_majflt = after->ru_majflt - before->ru_majflt,
	    .ru_nvcsw = after->ru_nvcsw - before->ru_nvcsw,
	    .ru_nivcsw = after->ru_nivcsw - before->ru_nivcsw,
	};
}

static void print_count(const char *name, uint64_t value)
{
	printf(",\"%s\":%" PRIu64, name, value);
}

static void print_flag(const char *name, bool value)
{
	printf(",\"%s\":%s", name, value ? "true" : "false");
}

/* No samples have no quantiles: null, where a number would be a lie. */
static void print_quantiles(const char *name, const struct quantiles *q)
{
	if (q->samples == 0) {
		printf(",\"%s\":{\"p50\":null,\"p99\":null,\"p999\":null,\"max\":null}", name);
		return;
	}
	printf(",\"%s\":{\"p50\":%.3f,\"p99\":%.3f,\"p999\":%.3f,\"max\":%.3f}", name,
	       (double)q->p50 / 1e3, (double)q->p99 / 1e3, (double)q->p999 / 1e3,
	       (double)q->max / 1e3);
}

static void print_errors(const struct error_tally *errors)
{
	printf(",\"errors_by_code\":{");
	for (size_t i = 0; i < errors->codes; i++)
		printf("%s\"%s\":%" PRIu64, i ? "," : "", errors->entry[i].code,
		       errors->entry[i].count);
	printf("}");
}

static void print_cost(const struct rusage *cost)
{
	printf(",\"cost\":{\"user_s\":%ld.%06ld,\"system_s\":%ld.%06ld,\"minor_faults\":%ld,"
	       "\"major_faults\":%ld,\"voluntary_switches\":%ld,\"involuntary_switches\":%ld}",
	       cost->ru_utime.tv_sec, cost->ru_utime.tv_usec, cost->ru_stime.tv_sec,
	       cost->ru_stime.tv_usec, cost->ru_minflt, cost->ru_majflt, cost->ru_nvcsw,
	       cost->ru_nivcsw);
}

void summary_print(const struct summary *s, const struct error_tally *errors)
{
	printf("{\"event\":\"end\",\"schema\":\"forktail.load/2\"");
	print_count("intended", s->counts.intended);
	print_count("sent", s->counts.sent);
	print_count("completed", s->counts.completed);
	print_count("errors", s->counts.errors);
	print_count("lost", s->counts.lost);
	print_count("in_flight", s->in_flight);
	print_count("unsent", s->unsent);
	print_count("misses", s->counts.misses);
	print_count("held", s->held);
	print_errors(errors);
	print_count("start_ns", s->start);
	print_count("end_ns", s->end);
	printf(",\"rate_wanted\":%.6f,\"rate_intended\":%.6f,\"rate_sent\":%.6f"
	       ",\"rate_error\":%.9f",
	       s->rate_wanted, s->rate_intended, s->rate_sent,
	       s->rate_intended > 0 ? s->rate_sent / s->rate_intended - 1 : 0);
	print_quantiles("lag_us", &s->lag);
	print_quantiles("latency_us", &s->latency);
	print_quantiles("read_delay_us", &s->read_delay);
	print_quantiles("idle_us", &s->idle);
	print_count("unstamped", s->unstamped);
	print_count("stamp_error_ns", s->stamp_error);
	print_count("clock_steps", s->clock_steps);
	print_cost(&s->cost);
	print_count("log_records", s->counts.intended);
	print_flag("late", s->late);
	print_flag("conserved", s->conserved);
	print_flag("server_gone", s->server_gone);
	printf("}\n");
	fflush(stdout);
}
