include $(sort $(wildcard $(BR2_EXTERNAL_MENDER_APP_PATH)/package/*/*.mk))
