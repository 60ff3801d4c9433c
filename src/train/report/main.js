drawSummary();
drawLive();
drawSchedule();
drawCurve();
drawNodes();
drawSizes();
drawTraining();
drawSkill();
