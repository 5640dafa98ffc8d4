/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The stages of an exchange, numbered as in attribution/stage.go. */
#pragma once

enum stage {
	STAGE_ACCEPT_WAIT,
	STAGE_WAKE_TO_RUN,
	STAGE_RUNTIME_HANDOFF,
	STAGE_READER,
	STAGE_ENGINE,
	STAGE_SEND_QUEUE,
	STAGE_UNEXPLAINED,
	STAGES,
};
