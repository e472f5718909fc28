/* SPDX-License-Identifier: Apache-2.0 */
#include "error_tally.h"

#include <ctype.h>
#include <string.h>

/* The word goes into JSON: whatever a hostile server puts there, it stays a plain word. */
static void first_word(char word[ERROR_CODE_BYTES], const char *line)
{
	size_t length = 0;

	for (; line[length] && line[length] != ' ' && length < ERROR_CODE_BYTES - 1; length++)
		word[length] = isalnum((unsigned char)line[length]) ? line[length] : '_';
	word[length] = '\0';
}

void error_tally_add(struct error_tally *tally, const char *line)
{
	char word[ERROR_CODE_BYTES];
	size_t i = 0;

	first_word(word, line);
	while (i < tally->codes && strcmp(tally->entry[i].code, word))
		i++;
	if (i == ERROR_CODES) {
		i--;
		strcpy(tally->entry[i].code, "other");
	} else if (i == tally->codes) {
		tally->codes++;
		strcpy(tally->entry[i].code, word);
	}
	tally->entry[i].count++;
}
